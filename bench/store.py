"""Results as JSON files: a stated schema version, every sample, and refusal of what is not ours."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.cell import Cell
from bench.chart import Chart, Line, Point
from bench.errors import BenchError
from bench.machine import Commit, Machine
from bench.result import Figures, Result, Verdict
from bench.workload import Claim

KIND = "penstock-bench"
SCHEMA = 2


def to_json(result: Result) -> str:
    """Return the whole result as JSON text, one field per line."""
    fields: dict[str, Any] = {"kind": KIND, "schema": SCHEMA, **asdict(result)}
    fields["figures"] = [_figures_out(one) for one in result.figures]
    fields["verdicts"] = [_verdict_out(verdict) for verdict in result.verdicts]
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


def load(path: Path) -> Result:
    """Read a result that `to_json` wrote."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BenchError(
            f'cannot read the result "{path}"',
            detail=error.strerror,
            hint="write one with: python -m bench NAME --json FILE",
        ) from error
    except ValueError as error:
        raise BenchError(f'"{path}" is not a JSON file', detail=str(error)) from error
    _require_ours(path, fields)
    try:
        return _result_in(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(
            f'the result "{path}" is damaged',
            detail=f"{type(error).__name__}: {error}",
            hint="measure it again",
        ) from error


def _require_ours(path: Path, fields: Any) -> None:
    if not isinstance(fields, dict) or fields.get("kind") != KIND:
        raise BenchError(
            f'"{path}" is not a benchmark result', hint="write one with: python -m bench NAME --json FILE"
        )
    if fields.get("schema") != SCHEMA:
        raise BenchError(
            f'"{path}" has schema version {fields.get("schema")}; this Penstock reads version {SCHEMA}',
            hint="measure it again with this version",
        )


def _figures_out(one: Figures) -> dict[str, Any]:
    return {
        "case": one.cell.case,
        "way": one.cell.way,
        "units": dict(one.units),
        "median_seconds": one.seconds.median,
        "warm_up_ns": list(one.warm_up_ns),
        "samples_ns": list(one.samples_ns),
        "checks": one.checks,
        "notes": {name: list(samples) for name, samples in one.notes.items()},
    }


def _verdict_out(verdict: Verdict) -> dict[str, Any]:
    claim = verdict.claim
    return {
        "says": claim.says,
        "cell": list(claim.cell),
        "over": list(claim.over) if claim.over else None,
        "at_most": claim.at_most,
        "speed": claim.speed,
        "note": claim.note,
        "narrow": claim.narrow,
        "measured": verdict.measured,
        "held": verdict.held,
        "low": verdict.low,
        "high": verdict.high,
        "work": verdict.work,
    }


def _result_in(fields: dict[str, Any]) -> Result:
    plain = {name: value for name, value in fields.items() if name not in ("kind", "schema")}
    return Result(
        **plain
        | {
            "machine": Machine(**fields["machine"]),
            "commit": Commit(**fields["commit"]) if fields["commit"] else None,
            "figures": tuple(_figures_in(one) for one in fields["figures"]),
            "verdicts": tuple(_verdict_in(one) for one in fields["verdicts"]),
            "charts": tuple(_chart_in(one) for one in fields["charts"]),
        }
    )


def _figures_in(one: dict[str, Any]) -> Figures:
    return Figures(
        cell=Cell(one["case"], one["way"]),
        units=one["units"],
        warm_up_ns=tuple(one["warm_up_ns"]),
        samples_ns=tuple(one["samples_ns"]),
        checks=one["checks"],
        notes={name: tuple(samples) for name, samples in one["notes"].items()},
    )


def _verdict_in(one: dict[str, Any]) -> Verdict:
    over = Cell(*one["over"]) if one["over"] else None
    how = one["speed"], one["note"], one.get("narrow", False)
    claim = Claim(one["says"], Cell(*one["cell"]), one["at_most"], over, *how)
    return Verdict(claim, one["measured"], one["held"], one["low"], one["high"], one["work"])


def _chart_in(one: dict[str, Any]) -> Chart:
    lines = tuple(
        Line(line["name"], tuple(_point_in(point) for point in line["points"]), line["style"])
        for line in one["lines"]
    )
    return Chart(**one | {"lines": lines})


def _point_in(one: dict[str, Any]) -> Point:
    return Point(one["at"], one["label"], Cell(*one["cell"]))
