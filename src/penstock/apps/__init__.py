"""Whole programs that come with Penstock: the applications of the papers, and the program of `penstock demo`.

Each is a module that can be read as an example: options, a generator of rows, the graph, and a recount in
plain Python of what must come out. `APPLICATIONS` has them by name.
"""

from __future__ import annotations

from penstock.apps.application import Application, Options
from penstock.apps.band_join import BAND_JOIN
from penstock.apps.busy_operators import BUSY_OPERATORS
from penstock.apps.fraud_detection import FRAUD_DETECTION
from penstock.apps.linear_road import LINEAR_ROAD
from penstock.apps.spike_detection import SPIKE_DETECTION
from penstock.apps.traffic_monitoring import TRAFFIC_MONITORING
from penstock.apps.voip_stream import VOIP_STREAM
from penstock.apps.word_count import WORD_COUNT
from penstock.apps.yahoo import WINDOWED_COUNT, YAHOO, YSB_RATIO

_ALL = (
    FRAUD_DETECTION,
    SPIKE_DETECTION,
    TRAFFIC_MONITORING,
    WORD_COUNT,
    YAHOO,
    LINEAR_ROAD,
    VOIP_STREAM,
    WINDOWED_COUNT,
    YSB_RATIO,
    BAND_JOIN,
    *BUSY_OPERATORS,
)
APPLICATIONS: dict[str, Application] = {application.name: application for application in _ALL}

__all__ = ["APPLICATIONS", "Application", "Options"]
