"""A run in virtual time during which the real controller changes threads and replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from bench.simulation.machine import MS, Costs, Machine
from bench.simulation.topology import Topology
from penstock.engines.local import schedulers
from penstock.engines.local.elastic.controller import THREADS, Limits, ScalingDecision, ScalingPolicy
from penstock.engines.local.elastic.sample import Sampler

Load = Callable[[Machine, int], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters that stay the same over the periods of a run."""

    cores: int
    scheduler: str = "random"
    seed: int = 1
    period_ns: int = 1_000 * MS
    costs: Costs = field(default_factory=Costs)


@dataclass(frozen=True, slots=True)
class Period:
    """One period: how the run was configured, what it did, and what was decided at its end."""

    threads: int
    replicas: Mapping[str, int]
    rows_per_second: float
    utilisation: float
    decisions: tuple[ScalingDecision, ...]


def keep_load(machine: Machine, period: int) -> None:
    """Leave the load as it is."""


def build_machine(topology: Topology, setting: Setting, threads: int) -> Machine:
    """Return a machine at the start of its run, with one replica of everything."""
    random = Random(setting.seed)  # noqa: S311 (chance in a simulation, nothing secret)
    scheduler = schedulers.make_scheduler(setting.scheduler, random)
    return Machine(topology, scheduler, setting.costs, threads, random)


def adapt(
    topology: Topology, setting: Setting, periods: int, *, threads: int = 1, load: Load = keep_load
) -> list[Period]:
    """Run for a number of periods, from `threads` threads and one replica of every operator.

    load  called at the start of every period; it may change the machine's `rate` and operators' costs
    """
    machine = build_machine(topology, setting, threads)
    controller = ScalingPolicy(Limits(most_threads=setting.cores))
    sampler = Sampler({busy.name: busy.most for busy in topology.operators}, machine.now)
    history = []
    for number in range(periods):
        load(machine, number)
        configured, reached = machine.replicas(), machine.n_finished
        machine.run_until(machine.now + setting.period_ns)
        sample = sampler.look(machine.task_statistics(), machine.threads, machine.now)
        decisions = tuple(controller.decide(sample))
        rows = (machine.n_finished - reached) * 1e9 / setting.period_ns
        history.append(Period(machine.threads, configured, rows, sample.utilisation, decisions))
        apply_decisions(machine, decisions)
    return history


def apply_decisions(machine: Machine, decisions: tuple[ScalingDecision, ...]) -> None:
    """Apply the controller's decisions to the machine."""
    machine.resize({d.step: d.after for d in decisions if d.step != THREADS})
    for decision in decisions:
        if decision.step == THREADS:
            machine.set_threads(decision.after)


def run_fixed(
    topology: Topology,
    setting: Setting,
    threads: int,
    replicas: Mapping[str, int],
    *,
    periods: int = 2,
    load: Load = keep_load,
) -> float:
    """Return the rows per second of a configuration that does not change, after a warm-up period."""
    machine = build_machine(topology, setting, threads)
    machine.resize(dict(replicas))
    load(machine, 0)
    machine.run_until(setting.period_ns)
    reached = machine.n_finished
    machine.run_until(machine.now + periods * setting.period_ns)
    return (machine.n_finished - reached) * 1e9 / (periods * setting.period_ns)
