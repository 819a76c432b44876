"""A merged pipe that is used twice: the algebra merges once, so a relay stands where the pipes meet.

Pipes meet at the step that reads them. Where several steps read the same ones there is no such step, and each
would merge a branch of every pipe with branches of others, which no rule covers. One that passes rows on
unchanged gives them a place to meet, from where they part again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from penstock.operators.op import IN, OUT, Routing
from penstock.operators.split import Relay
from penstock.plan.step import Input, Ref, Step


def with_relays(steps: Sequence[Step]) -> tuple[Step, ...] | None:
    """The steps with a relay before those that read the same merged pipe; None if no two do."""
    merged = [given.feeds for step in steps for given in step.inputs if _is_merged(given)]
    shared = {feeds for feeds, n in Counter(merged).items() if n > 1}
    if not shared:
        return None
    by_name = {step.name: step for step in steps}
    relays: dict[tuple[Ref, ...], Step] = {}
    found: list[Step] = []
    for step in steps:
        inputs = []
        for given in step.inputs:
            at = given
            if _is_merged(given) and given.feeds in shared:
                if given.feeds not in relays:
                    relay = relays[given.feeds] = _relay(step, given, by_name)
                    by_name[relay.name] = relay
                    found.append(relay)
                at = replace(given, feeds=(Ref(relays[given.feeds].name),))
            inputs.append(at)
        found.append(replace(step, inputs=tuple(inputs)))
    return tuple(found)


def _is_merged(given: Input) -> bool:
    return len(given.feeds) > 1 and not given.control


def _relay(step: Step, given: Input, by_name: dict[str, Step]) -> Step:
    """As wide as the first pipe; keys are the readers' own."""
    name = Relay.verb
    number = 1
    while name in by_name:
        number += 1
        name = f"{Relay.verb}-{number}"
    stream = replace(given.stream, key=())
    wide = by_name[given.feeds[0].step].degree
    return Step(
        name,
        Relay(),
        (Input(IN, given.feeds, stream),),
        {OUT: stream},
        wide,
        Routing.FORWARD,
        fuse=False,
        where=step.where,
    )
