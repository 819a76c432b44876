"""Elasticity at work: the scaling policy, and the controller that carries its decisions out on a run.

The policy: once per adaptation period, a sample in, decisions with their reasons out. It has no clock, starts
no thread and changes nothing itself. Every change is a trial. One that adds something must raise throughput
in the next period, one that removes something must not lower it; a change that fails is reverted and held:
nobody touches it for a while, twice as long after every further failure, so nothing oscillates. A hold ends
when the load changes, because then it says nothing any more. One trial runs at a time, threads and replicas
together, because neither is of use without the other.

The controller does everything in `ElasticController.adapt`, at the end of each period. Threads come and go in
the pool. The replicas of an elastic step all exist from the start, and as many as are needed get rows: a step
without state through its outputs (`RoundRobinOutput`), so that the order behind it is kept; a keyed step by a
rescale, which moves its state (`rescale.py`). A change that cannot be made now, because a step has ended for
example, is left out, and the next sample shows that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from penstock.clock import Clock
from penstock.engines.local.build import ExecutionGraph
from penstock.engines.local.dispatch import ThreadPool
from penstock.engines.local.elastic import sample as samples
from penstock.engines.local.elastic.sample import FILL, Sample, StepSample, replicas_for, useful_threads
from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.engines.local.options import check_length
from penstock.errors import EngineError
from penstock.events import EventSink, ScaleDecided
from penstock.frozen import Frozen, dataclass
from penstock.options import Elastic

SPARE = 0.8  # how busy replicas should be that only have to keep up with the sources
THREADS = "(threads)"  # stands where a decision names a step, and cannot be a step's name
MAX_UNJUDGED = 5
"""Periods in a row that a change of replicas may take before the controller judges everything else again."""


class ScalingDecision(Frozen):
    """A change of the number of threads, or of the replicas of a step, and its reason."""

    step: str
    before: int
    after: int
    reason: str


class Limits(Frozen, kw_only=True):
    """What the policy may do, and when (C-Stream, 4 and 5.2, for the first three).

    low, high      utilisation below which threads are removed, above which they are added
    congestion     write-blocked ratio from which a port is congested
    least_threads  never fewer threads than these
    most_threads   never more: the cores that there are
    hold           periods to leave something alone after a change of it was reverted
    """

    low: float = 0.90
    high: float = 0.95
    congestion: float = 0.01
    least_threads: int = 1
    most_threads: int
    hold: int = 6


def find_bottlenecks(steps: Iterable[StepSample], congestion: float) -> list[StepSample]:
    """Return the bottlenecks among the steps, in the order of the graph (C-Stream, Algorithm 9).

    A step is a bottleneck if its input is congested and what it writes to is not: it is slow by itself, and
    not because something after it blocks it. The input of a replicated step is the mean over its replicas.

    congestion  the write-blocked ratio from which a port counts as congested
    """
    return [step for step in steps if step.full_in >= congestion and step.full_out < congestion]


def add_replicas(sample: Sample, limits: Limits) -> list[ScalingDecision]:
    """Return the replicas to add; none if nothing is congested, or if all threads are busy anyway.

    Algorithm 9 of C-Stream says whether. The demand says how far and for whom: the bottleneck gets the
    replicas it can keep busy on all the threads that there may be, and so do the steps that would be the next
    bottleneck. C-Stream adds one replica of one step per period instead.
    """
    if sample.utilisation > limits.high and sample.threads >= limits.most_threads:
        return []
    slow = find_bottlenecks(sample.steps, limits.congestion)
    if not slow:
        return []
    wanted = replicas_for(sample, limits.most_threads)
    decisions = []
    for step in sample.steps:
        after = min(step.most, ceil(wanted[step.step] - 1e-9))
        if after > step.replicas:
            work = f"there is work for {wanted[step.step]:.1f} replicas"
            reason = f'"{slow[-1].step}" is slow now, and this step would be next: {work}'
            if step.full_in:
                reason = f"its input is full {step.full_in:.0%} of the time and {work}"
            decisions.append(ScalingDecision(step.step, step.replicas, after, reason))
    if decisions or sample.utilisation >= limits.low:
        return decisions
    # Why: the demand sees no need and threads are idle, yet a step is congested, so C-Stream's one replica
    # more.
    for step in slow:
        if step.replicas < step.most:
            reason = f"its input is full {step.full_in:.0%} of the time"
            return [ScalingDecision(step.step, step.replicas, step.replicas + 1, reason)]
    return []


def remove_replicas(sample: Sample, limits: Limits) -> list[ScalingDecision]:
    """Return the replicas to remove: those that neither the sources nor all threads can keep busy.

    The paper never removes replicas; here a step with more than one whole replica too many gives them up.
    """
    if sample.has_backlog(limits.congestion):
        wanted = replicas_for(sample, limits.most_threads)
    else:
        wanted = {step.step: step.busy / SPARE for step in sample.steps}
    decisions = []
    for step in sample.steps:
        after = max(step.least, ceil(wanted[step.step] + 0.5))
        if after < step.replicas and step.most > 1:
            reason = f"there is work for {wanted[step.step]:.1f} replicas"
            decisions.append(ScalingDecision(step.step, step.replicas, after, reason))
    return decisions


def resize_pool(sample: Sample, replicas: Mapping[str, int], limits: Limits) -> ScalingDecision | None:
    """Return a change of the number of threads, or None; `replicas` are the next period's (C-Stream, 4.1).

    Above `high` there is more work than threads, below `low` more threads than work. C-Stream then moves by
    one thread; here the demand says how far, so that sixty-four cores do not take sixty-four periods, and a
    pool shrinks only to a size at which the same work stays below `high`, so that it does not grow again at
    once.
    """
    n, used = sample.threads, sample.utilisation
    if not n:
        return None  # every task has a thread of its own
    grown = any(replicas[step.step] > step.replicas for step in sample.steps)
    if n > limits.most_threads or n < limits.least_threads:
        after = min(max(n, limits.least_threads), limits.most_threads)
        return ScalingDecision(THREADS, n, after, f"{n} threads are outside the limits")
    if used > limits.high or grown:
        useful = min(useful_threads(sample, replicas), limits.most_threads)
        after = max(n, useful) if grown else max(min(n + 1, limits.most_threads), useful)
        reason = (
            f"utilisation {used:.2f} is above {limits.high}" if used > limits.high else "for more replicas"
        )
    elif used < limits.low:
        # Why: with rows waiting at the sources, the slowest task must find a worker at once, so leave some
        # room.
        aim = FILL if sample.has_backlog(limits.congestion) else (limits.low + limits.high) / 2
        after = min(n, max(limits.least_threads, ceil(used * n / aim - 1e-9)))
        reason = f"utilisation {used:.2f} is below {limits.low}"
    else:
        return None
    return ScalingDecision(THREADS, n, after, reason) if after != n else None


GAIN = 0.02  # what added threads or replicas must bring
LOSS = 0.02  # what taking some away may cost
HALF = 0.5
ANOTHER_LOAD = 0.3  # a throughput this far from the one at the time of the hold is another load


def is_other_load(now: int, then: int) -> bool:
    """Return whether a throughput is so far from an earlier one that old conclusions do not hold."""
    return abs(now - then) > ANOTHER_LOAD * then


class Trial(Frozen):
    """A change on trial, the sample of the period before it, and the speed-up that it promised."""

    decisions: tuple[ScalingDecision, ...]
    before: Sample
    promised: float = 1.0

    @property
    def is_growth(self) -> bool:
        """Return whether it added something."""
        return any(decision.after > decision.before for decision in self.decisions)

    def failure(self, after: Sample, congestion: float) -> str | None:
        """Return why it is to be reverted; None if it may stay."""
        old, new = self.before.throughput, after.throughput
        if self.is_growth:
            kept_up = not (self.before.has_backlog(congestion) and after.has_backlog(congestion))
            if kept_up or new >= old * (1 + GAIN):
                return None
            return f"throughput did not rise ({new / old - 1:+.0%})"
        if not after.has_backlog(congestion) or new >= old * (1 - LOSS):
            return None
        return f"throughput fell ({new / old - 1:+.0%})"

    def gain(self, after: Sample) -> float:
        """Return the ratio of the throughput after and before."""
        return after.throughput / max(1, self.before.throughput)


@dataclass(slots=True)
class _Hold:
    """What must not be changed for now: until when, after how many failures, at which throughput."""

    until: int
    failures: int
    throughput: int


class ScalingPolicy:
    """Decides on threads and replicas for one run."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._holds: dict[str, _Hold] = {}
        self._trial: Trial | None = None
        # The throughput at which it began only to double; None if it may jump.
        self._careful_at: int | None = None
        self._period = 0

    def decide(self, sample: Sample) -> list[ScalingDecision]:
        """Return what to change before the next period; empty to leave everything as it is."""
        self._period += 1
        trial, self._trial = self._trial, None
        if trial is not None and (failure := trial.failure(sample, self._limits.congestion)):
            for decision in trial.decisions:
                last = self._holds.get(decision.step)
                failures = last.failures + 1 if last else 1
                until = self._period + self._limits.hold * 2 ** (failures - 1)
                self._holds[decision.step] = _Hold(until, failures, trial.before.throughput)
            return [ScalingDecision(d.step, d.after, d.before, failure) for d in trial.decisions]
        self._holds = {  # those from another load end
            step: hold
            for step, hold in self._holds.items()
            if not is_other_load(sample.throughput, hold.throughput)
        }
        decisions = self._undo_most(trial, sample) if trial is not None else []
        decisions = decisions or self._change(sample)
        if decisions:  # what to expect of them, if nothing but threads is scarce
            after = {decision.step: decision.after for decision in decisions}
            replicas = {step.step: after.get(step.step, step.replicas) for step in sample.steps}
            threads = min(after.get(THREADS, sample.threads), useful_threads(sample, replicas))
            used = sample.utilisation * sample.threads
            self._trial = Trial(tuple(decisions), sample, threads / used if used else 1.0)
        return decisions

    def _undo_most(self, trial: Trial, sample: Sample) -> list[ScalingDecision]:
        """Remove most of a disappointing growth: goes back to the threads that can have done the work.

        To do g times as much takes g times as many busy threads, if the others were of any use. From there
        on the pool doubles, and every doubling is a trial of its own.
        """
        if self._careful_at is not None:
            if trial.is_growth:
                self._careful_at = sample.throughput  # another throughput, but not another load
            return []
        # Less than half of what it promised: not only threads are scarce.
        disappoints = trial.is_growth and trial.gain(sample) - 1 < (trial.promised - 1) * HALF
        if not (disappoints and sample.has_backlog(self._limits.congestion)):
            return []
        self._careful_at = sample.throughput
        used = trial.before.utilisation * trial.before.threads
        after = max(self._limits.least_threads, ceil(used * trial.gain(sample) / FILL))
        if after >= sample.threads:
            return []
        reason = f"{trial.promised:.1f} times the work was expected, {trial.gain(sample):.1f} needs no more"
        return [ScalingDecision(THREADS, sample.threads, after, reason)]

    def _change(self, sample: Sample) -> list[ScalingDecision]:
        if self._careful_at is not None and is_other_load(sample.throughput, self._careful_at):
            self._careful_at = None
        # On a load on which a large jump disappointed it goes one thing at a time, replicas before threads,
        # and no further than twice the threads.
        careful = self._careful_at is not None
        most = min(self._limits.most_threads, 2 * sample.threads) if careful else self._limits.most_threads
        limits = replace(self._limits, most_threads=most)
        growing = self._drop_held(add_replicas(sample, limits))
        if growing and careful:
            return growing
        replicas = {step.step: step.replicas for step in sample.steps}
        replicas |= {decision.step: decision.after for decision in growing}
        pool = resize_pool(sample, replicas, limits)
        threads = self._drop_held([pool]) if pool is not None else []
        if growing or any(decision.after > decision.before for decision in threads):
            return [*growing, *(decision for decision in threads if decision.after > decision.before)]
        return [*threads, *self._drop_held(remove_replicas(sample, limits))]

    def _drop_held(self, decisions: Sequence[ScalingDecision]) -> list[ScalingDecision]:
        """Return the decisions that no hold forbids."""
        return [
            d for d in decisions if d.step not in self._holds or self._period >= self._holds[d.step].until
        ]


class ReplicaScaling:
    """The elastic steps of an execution graph: how many replicas they have, and changes of that."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._assignments = {assignment.step: assignment for assignment in graph.assignments.values()}

    @property
    def most(self) -> dict[str, int]:
        """Return step -> replicas that it may have."""
        stateless = {step: len(outputs[0].channels) for step, outputs in self._graph.elastic_outputs.items()}
        return stateless | {step: keyed.max_replicas for step, keyed in self._assignments.items()}

    @property
    def least(self) -> dict[str, int]:
        """Return step -> replicas that it must have."""
        return {step: self._graph.plan[step].degree.least for step in self.most}

    def set_replicas(self, step: str, n: int) -> bool:
        """Change the replicas of a step, from its next batches or the end of a round on.

        Returns False if that is impossible, or if an earlier change of the step is still in progress: the
        decision would be reported again and again.
        """
        assignment = self._assignments.get(step)
        if assignment is not None:
            rescaler = assignment.rescaler
            return not rescaler.is_requested(assignment) and rescaler.request(assignment, n)
        outputs = self._graph.elastic_outputs.get(step, ())
        if not 1 <= n <= self.most.get(step, 0) or any(output.is_rescaling for output in outputs):
            return False
        for output in outputs:
            output.rescale(n)
        return True

    def is_rescaling(self) -> bool:
        """Return whether a requested change is still in progress."""
        outputs = (output for outputs in self._graph.elastic_outputs.values() for output in outputs)
        if any(keyed.rescaler.is_requested(keyed) for keyed in self._assignments.values()):
            return True
        return any(output.is_rescaling for output in outputs)

    def active_tasks(self) -> list[TaskStatistics]:
        """Return the statistics of the replicas that get rows."""
        active: list[TaskStatistics] = []
        for replicas in self._graph.replicas:
            assignment = self._graph.assignments.get(replicas.group.number)
            outputs = self._graph.elastic_outputs.get(replicas.group.head.name)
            n_active = outputs[0].n_active if outputs else len(replicas.tasks)
            n_active = n_active if assignment is None else assignment.n
            active += [task.statistics for task in replicas.tasks[:n_active]]
        return active


class ElasticController:
    """Looks at a run once per period, and changes it.

    now  nanoseconds by the clock of the statistics
    """

    def __init__(
        self,
        scaling: ReplicaScaling,
        pool: ThreadPool,
        limits: Limits,
        *,
        now: Callable[[], int],
        clock: Clock,
        events: EventSink,
    ) -> None:
        self._scaling, self._pool, self._now = scaling, pool, now
        self._clock, self._events = clock, events
        self._policy = ScalingPolicy(limits)
        self._sampler = samples.Sampler(scaling.most, now(), scaling.least)
        self._n_rescaling = 0

    def adapt(self) -> list[ScalingDecision]:
        """Decide at the end of a period, carry decisions out and report them."""
        is_rescaling = self._scaling.is_rescaling()
        n_before, self._n_rescaling = self._n_rescaling, self._n_rescaling + 1 if is_rescaling else 0
        sample = self._sampler.look(self._scaling.active_tasks(), self._pool.n_threads, self._now())
        # Why: in a period that begins or ends during a rescale state may be on its way and nobody works, so
        # it says nothing about the load. But a rescale that waits for rows must not hold up the others for
        # ever.
        if max(n_before, self._n_rescaling) and self._n_rescaling <= MAX_UNJUDGED:
            return []
        decisions = []
        for decision in self._policy.decide(sample):
            if decision.step == THREADS:
                self._pool.set_threads(decision.after)
            elif not self._scaling.set_replicas(decision.step, decision.after):
                continue
            decisions.append(decision)
            now = self._clock.now()
            self._events(ScaleDecided(now, decision.step, decision.before, decision.after, decision.reason))
        return decisions


def resolve_limits(options: Elastic, cores: int) -> tuple[Limits, int]:
    """Return the limits that `ps.Elastic` asks for on so many cores, and the period in microseconds."""
    if not 0 < options.low < options.high <= 1:
        raise EngineError(
            f"low={options.low!r} and high={options.high!r} leave no utilisation to aim for",
            hint="shares with low below high: ps.Elastic(low=0.9, high=0.95)",
        )
    period, hold = (
        check_length(name, getattr(options, name), "look", f'ps.Elastic({name}="10 s")')
        for name in ("period", "hold")
    )
    n_periods = max(1, round(hold / period))
    return Limits(low=options.low, high=options.high, most_threads=cores, hold=n_periods), period
