"""Windows by key, combined before they are dealt: AIR's local aggregation before a key-by shuffle (4.3).

Where rows are, one cell per (slice, key) takes them in; what goes by key to the replicas is such cells, once
their slice has ended, and no rows. These are the two halves of paned windows (`stages/patterns`), the first
at the end of the line that the rows come from. Rows are judged there, by the watermark that the step has: so
it is done where one line feeds the step, and not where streams of different watermarks flow together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.engines.local.groups import Group, Part
from penstock.operators.choices.patterns import KEYED, PANED, unfit
from penstock.operators.op import ERRORS, LATE, LATE_RIGHT, Routing
from penstock.operators.windows import Windows
from penstock.plan.step import Step

_SIDES = (LATE, LATE_RIGHT, ERRORS)


def combined_ahead(groups: Sequence[Group], numbered: Collection[str] = ()) -> list[Group]:
    """The same groups, with windows combined at the end of the lines that feed them, wherever that can be.

    numbered  window steps whose rows come with numbers
    """
    found = list(groups)
    for group in groups:
        fits = _can_combine_ahead(group.head, numbered=group.head.name in numbered)
        if group.part is Part.WHOLE and group.width > 1 and fits:
            feeder = _feeder(found, group.head)
            if feeder is not None:
                found[feeder.number] = replace(
                    feeder, steps=(*feeder.steps, group.head), ahead=(*feeder.ahead, group.head.name)
                )
                found[group.number] = replace(found[group.number], part=Part.JOINING)
    return found


def _can_combine_ahead(step: Step, *, numbered: bool) -> bool:
    """Whether a step is windows by key with a fixed number of replicas, of aggregates that come in parts."""
    op = step.op
    if not isinstance(op, Windows) or op.pattern != KEYED or step.routing is not Routing.KEY_BY:
        return False
    if step.degree.elastic or step.degree.least == 1 or not step.up.key or len(step.data_feeds) != 1:
        return False
    return step.data_feeds[0].port not in _SIDES and unfit(PANED, op, step.up, numbered=numbered) is None


def _feeder(groups: Sequence[Group], step: Step) -> Group | None:
    """The line whose last step feeds the step; None if the rows leave in the middle of one."""
    (ref,) = step.data_feeds
    for group in groups:
        own = group.steps[: len(group.steps) - len(group.ahead)]
        if own and own[-1].name == ref.step and not group.gives_parts_of(ref.step):
            return group
    return None
