"""Events: plain, frozen data that turn into JSON objects."""

from __future__ import annotations

import dataclasses
import json

import pytest

from penstock import events

EVENTS = [
    events.RunStarted(0, "shop", "reference", ("trades", "sink")),
    events.BatchDone(1, 0, {"trades": 3}, {"sink": 2}, 40),
    events.WatermarkMoved(2, "trades", None),
    events.RowsLate(3, "views", 2),
    events.RowsErrored(4, "views", 1, "skip", "division by zero"),
    events.StateSaved(5, 3, 1_024),
    events.ScaleDecided(6, "views", 1, 2, "utilisation 0.97"),
    events.StepStalled(7, "views", 0, 30_000_000, ("flow.py:3, in slow: sleep(60)",)),
    events.StepFailed(7, "views", "no"),
    events.RunEnded(8, "drained", 4),
]


def test_every_kind_of_event_is_here() -> None:
    kinds = {
        kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)
    }
    assert {type(event) for event in EVENTS} == kinds - {events.Event}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_one_json_object_with_its_kind_and_time(event: events.Event) -> None:
    data = json.loads(json.dumps(event.to_dict()))
    assert data["event"] == type(event).__name__
    assert data["at"] == event.at
    assert set(data) == {"event", *(field.name for field in dataclasses.fields(event))}


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        EVENTS[0].at = 5  # type: ignore[misc]  # the point


def test_nobody_listens_and_nothing_happens() -> None:
    for event in EVENTS:
        events.ignore_event(event)
