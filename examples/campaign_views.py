"""How often was each campaign seen in the last ten seconds, every second, and what did it earn?

Run it with `python examples/campaign_views.py`, or with `penstock run examples/campaign_views.py`; add
`--engine spark` to run it on Spark.
"""

import penstock as ps
from penstock import col
from penstock.apps.campaign_views import ad_events, campaigns

results, late = ps.write.memory(), ps.write.memory()

graph = ps.PipeGraph("campaign-views", engine="local")
views = (
    graph.source(ps.read.table(ad_events(), batch=250), time="event_time", delay="2 s")
    .filter(col("event_type") == "view")
    .join_table(campaigns(), on="ad_id")
    .key_by("campaign_id")
    .window(ps.sliding("10 s", every="1 s"), lateness="1 s", name="views")
    .aggregate(views=ps.count(), revenue=ps.sum("price"))
)
views.sink(results)
views.late.sink(late)  # no row disappears silently

if __name__ == "__main__":
    graph.run()
    for row in results.rows()[-5:]:
        print(f"{row['window_end']:%H:%M:%S}  {row['campaign_id']}  {row['views']:>4}  {row['revenue']:8.2f}")
    print(f"{len(results.rows())} results, {len(late.rows())} late rows")
