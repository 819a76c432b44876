"""The graphs of WindFlow's seven applications: operators, edges and routings, with one replica each.

VS is the "reordering" graph of the benchmark suite, the one that fits the paper's table best.
"""

from __future__ import annotations

from penstock.blocks import Distribution, Input, Kind, Node, Operator

FORWARD, KEY_BY = Distribution.FORWARD, Distribution.KEY_BY


def source(name: str = "source", n: int = 1) -> Node:
    return Node(Operator(name, Kind.SRC, n, Distribution.NONE))


def step(
    name: str,
    kind: Kind,
    *inputs: str | Input,
    routing: Distribution = FORWARD,
    n: int = 1,
    chain: bool = False,
) -> Node:
    edges = tuple(item if isinstance(item, Input) else Input(item) for item in inputs)
    return Node(Operator(name, kind, n, routing), edges, chain)


FD = [
    source(),
    step("predictor", Kind.F, "source", routing=KEY_BY),
    step("sink", Kind.SNK, "predictor"),
]
SD = [
    source(),
    step("average", Kind.M, "source", routing=KEY_BY),
    step("spikes", Kind.F, "average"),
    step("sink", Kind.SNK, "spikes"),
]
TM = [
    source(),
    step("matcher", Kind.FM, "source"),
    step("speed", Kind.M, "matcher", routing=KEY_BY),
    step("sink", Kind.SNK, "speed"),
]
WC = [
    source(),
    step("splitter", Kind.FM, "source"),
    step("counter", Kind.A, "splitter", routing=KEY_BY),
    step("sink", Kind.SNK, "counter"),
]
YB = [
    source(),
    step("filter", Kind.F, "source"),
    step("joiner", Kind.FM, "filter"),
    step("window", Kind.KW, "joiner", routing=KEY_BY),
    step("sink", Kind.SNK, "window"),
]
LR = [
    source(),
    step("dispatcher", Kind.FM, "source"),
    step("toll-pos", Kind.FM, "dispatcher"),
    step("speed", Kind.FM, "dispatcher"),
    step("last-speed", Kind.FM, "speed"),
    step("toll-las", Kind.FM, "last-speed"),
    step("vehicles", Kind.FM, "dispatcher"),
    step("toll-cv", Kind.FM, "vehicles"),
    step("sink", Kind.SNK, "toll-pos", "toll-las", "toll-cv"),
]
VS = [
    source(),
    step("parser", Kind.M, "source"),
    step("dispatcher", Kind.M, "parser", routing=KEY_BY),
    step("ECR", Kind.M, "dispatcher", routing=KEY_BY),
    step("CT24", Kind.F, "ECR", routing=KEY_BY),
    step("GlobalACD", Kind.M, "ECR"),
    step("ECR24", Kind.M, "ECR", routing=KEY_BY),
    step("preRCR", Kind.FM, "ECR"),
    step("RCR", Kind.FM, "preRCR", routing=KEY_BY),
    step("FoFiR", Kind.FM, "RCR", routing=KEY_BY),
    step("ENCR", Kind.F, "ECR", routing=KEY_BY),
    step("URL", Kind.FM, "ENCR", routing=KEY_BY),
    step("ACD", Kind.FM, "CT24", "GlobalACD", "ECR24", routing=KEY_BY),
    step("Score", Kind.M, "ACD", "FoFiR", "URL", routing=KEY_BY),
    step("sink", Kind.SNK, "Score"),
]

APPLICATIONS = {"FD": FD, "SD": SD, "TM": TM, "WC": WC, "YB": YB, "LR": LR, "VS": VS}
