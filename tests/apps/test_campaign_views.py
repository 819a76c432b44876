"""The made-up events are what the demo needs: repeatable, out of order, a few of them late."""

from __future__ import annotations

import pyarrow as pa

from penstock.apps.campaign_views import LATE_US, START_US, ad_events, campaigns


def times(table: pa.Table) -> list[int]:
    return [int(value) for value in table["event_time"].cast(pa.int64()).to_pylist()]


def test_the_same_seed_gives_the_same_events_and_another_seed_others() -> None:
    assert ad_events(500, seed=3).equals(ad_events(500, seed=3))
    assert not ad_events(500, seed=3).equals(ad_events(500, seed=4))


def test_events_cover_the_stretch_and_arrive_out_of_order() -> None:
    event_times = times(ad_events(1_000, seconds=60))
    assert (min(event_times), len(event_times)) == (START_US, 1_000)
    assert START_US + 59_000_000 < max(event_times) < START_US + 60_000_000
    assert event_times != sorted(event_times)


def test_a_few_events_come_long_after_later_ones() -> None:
    newest, behind = 0, []
    for time in times(ad_events(5_000)):
        newest = max(newest, time)
        behind.append(newest - time)
    late = [lag for lag in behind if lag > 15_000_000]
    assert 0 < len(late) < 50
    assert max(late) <= LATE_US


def test_most_advertisements_belong_to_a_campaign_and_some_to_none() -> None:
    known = set(campaigns()["ad_id"].to_pylist())
    seen = ad_events(5_000)["ad_id"].to_pylist()
    unknown = [ad for ad in seen if ad not in known]
    assert 0 < len(unknown) < 150


def test_each_campaign_has_ten_advertisements() -> None:
    table = campaigns(3)
    assert table.num_rows == 30
    assert sorted(set(table["campaign_id"].to_pylist())) == ["campaign-0", "campaign-1", "campaign-2"]
