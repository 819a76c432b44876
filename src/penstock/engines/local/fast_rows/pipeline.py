"""Rows by themselves: a round of one plain row goes down the chain of a node with no batch made for it.

A batch, an end of round and a set of accounts per row would cost ten times what the user's functions do. Here
a row is a dict that one function after the other makes into the next, and what became of the rows is told
from few counts, when somebody asks. A row on which a function fails goes the usual way from there, so that
policies and messages are those of the chain. It is the way of runs in which no round is told of and none is
saved (`Progress.watched`); in others rows go through the chain as batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from penstock.accounts import Accounts
from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels.output import ForwardOutput
from penstock.engines.local.fast_rows.context import PlainRow, RowContext, RowOutput
from penstock.engines.local.fast_rows.direct_call import DirectCall
from penstock.engines.local.tasks.chain import ChainedStep, SinkStep, Target, count_rows
from penstock.operators.op import ERRORS, OUT
from penstock.stages.rows.batch import RowBatch

if TYPE_CHECKING:
    from penstock.stages.stateless import RowStep


class RowPipeline:
    """Seats that take rows by themselves, one behind the other, and where rows go from there.

    chain    whose steps it does
    tail     what is behind them
    put_row  its own
    n_in     rows that have come
    dropped  rows that were filtered, by chained
    failed   rows on which a function failed, by chained
    """

    __slots__ = ("_context", "_rows", "_steps", "chain", "dropped", "failed", "n_in", "put_row", "tail")

    def __init__(self, chain: Sequence[ChainedStep], rows: Sequence[RowStep], tail: RowOutput) -> None:
        self.chain, self._rows, self.tail, self.put_row = tuple(chain), tuple(rows), tail, tail.put_row
        self._steps = tuple(enumerate(each.step for each in rows))
        self._context: RowContext
        self.n_in = 0
        self.dropped, self.failed = [0] * len(rows), [0] * len(rows)

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """Rows are about to come, of rounds from this number on; the node has come to the mark."""
        self._context = context
        self.tail.begin(context, number, frontier)

    def end(self, number: int) -> int:
        """No more for now, all rounds before this number are over; gives the time spent for nodes behind."""
        return self.tail.end(number)

    def carry(self, row: PlainRow, number: int) -> bool:
        """One row, which is all of the round of this number; gives what the tail does."""
        for at, step in self._steps:
            try:
                made = step(row)
            except Exception as cause:
                self.n_in += 1
                self._lost(at, row, number, cause)
                return self.put_row(None, number)
            if made is None:
                self.n_in += 1
                self.dropped[at] += 1
                return self.put_row(None, number)
            row = made
        self.n_in += 1
        return self.put_row(row, number)

    def _lost(self, at: int, row: PlainRow, number: int, cause: Exception) -> None:
        """What the step's policy makes of a row on which it failed."""
        chained, of = self.chain[at], self._context
        self.failed[at] += 1
        batch = RowBatch.single(row, chained.step.up.schema, of.time, of.order(number))
        dead_letters = self._rows[at].lost(batch, cause)
        if dead_letters is not None:
            for target in chained.targets.get(ERRORS, ()):
                target(dead_letters)

    def count_source(self, accounts: Accounts) -> None:
        """Add the rows that have come to the accounts of the source that gave them."""
        count_rows(accounts, self.n_in, self.n_in)

    def count(self, at: int, accounts: Accounts) -> None:
        """Add what a chained has done to its accounts; how rows failed is there already."""
        n_in = self.n_in - sum(self.dropped[:at]) - sum(self.failed[:at])
        count_rows(accounts, n_in, n_in - self.dropped[at] - self.failed[at])
        accounts.filtered += self.dropped[at]


class BatchOutput:
    """The tail of a line whose rows go on as batches of one, to chain or outputs of any kind."""

    every_round: ClassVar[bool] = True

    def __init__(
        self, last: ChainedStep, chain: Sequence[ChainedStep], round_end_steps: Sequence[ChainedStep]
    ) -> None:
        self._targets: tuple[Target, ...] = last.targets.get(OUT, ())
        self._schema, self._round_end_steps = last.step.outputs[OUT].schema, tuple(round_end_steps)
        self._leaves = any(chained.outputs for chained in chain)
        self._context: RowContext
        self._frontier: Frontier

    def begin(self, context: RowContext, number: int, frontier: Frontier) -> None:
        """Remember what is asked of every row."""
        self._context, self._frontier = context, frontier

    def moved(self, frontier: Frontier) -> None:
        """The chain are told at the end of the round."""
        self._frontier = frontier

    def put_row(self, values: PlainRow | None, number: int) -> bool:
        """The row, and the end of its round."""
        of, frontier = self._context, self._frontier
        if values is not None:
            batch = RowBatch.single(values, self._schema, of.time, of.order(number))
            for target in self._targets:
                target(batch)
        for chained in self._round_end_steps:
            frontier = chained.end_round(of.origin[0], number, number, frontier)
        return self._leaves

    def end(self, number: int) -> int:
        """Nothing is done for others."""
        return 0


def build_source_pipeline(
    source: ChainedStep, chain: Sequence[ChainedStep], round_end_steps: Sequence[ChainedStep]
) -> RowPipeline:
    """The line behind a source at the head of a node.

    chain    the others
    round_end_steps  those to which the end of a round means something
    """
    mine, rows = _leading_row_steps(source.targets.get(OUT, ()), chain)
    last = mine[-1] if mine else source
    line = RowPipeline(mine, rows, _row_output(last, [source, *chain], chain[len(mine) :], round_end_steps))
    source.count_row_path = line.count_source
    return _count_by_pipeline(line)


def build_task_pipeline(
    chain: Sequence[ChainedStep], round_end_steps: Sequence[ChainedStep]
) -> RowPipeline | None:
    """The line of a node that reads channels, if its first chained takes rows by themselves."""
    if len(chain) == 1 and isinstance(chain[0], SinkStep):
        return RowPipeline((), (), chain[0])
    mine, rows = _leading_row_steps((chain[0].feed,), chain)
    if not mine:
        return None
    return _count_by_pipeline(
        RowPipeline(mine, rows, _row_output(mine[-1], chain, chain[len(mine) :], round_end_steps))
    )


def _count_by_pipeline(line: RowPipeline) -> RowPipeline:
    for at, chained in enumerate(line.chain):
        chained.count_row_path = partial(line.count, at)
    return line


def _leading_row_steps(
    targets: object, chain: Sequence[ChainedStep]
) -> tuple[list[ChainedStep], list[RowStep]]:
    """The first of the chain, as long as all rows go to the next one and it takes them by themselves."""
    mine, rows = [], []
    for chained in chain:
        row = chained.by_row()
        if row is None or targets != (chained.feed,):
            break
        mine.append(chained)
        rows.append(row)
        targets = chained.targets.get(OUT, ())
    return mine, rows


def _row_output(
    last: ChainedStep,
    chain: Sequence[ChainedStep],
    rest: Sequence[ChainedStep],
    round_end_steps: Sequence[ChainedStep],
) -> RowOutput:
    """Returns where rows go from the last step: the short way for one sink or one channel."""
    targets, schema = last.targets.get(OUT, ()), last.step.outputs[OUT].schema
    outputs = [output for chained in chain for output in chained.outputs]
    if not outputs and len(rest) == 1 and isinstance(rest[0], SinkStep) and targets == (rest[0].feed,):
        return rest[0]
    if not rest and len(outputs) == 1:
        (output,) = outputs
        if isinstance(output, ForwardOutput) and targets == (output.send,) and output.begin_rows(schema):
            return DirectCall(output)
    return BatchOutput(last, chain, round_end_steps)
