"""Saved windows as this run keeps them: another pattern, or another engine, may have saved them otherwise.

Pieces in another form (`stages/patterns/forms.py`) are cut anew before anything runs, and written beside
those that there are: the next manifest names the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.clock import WallClock
from penstock.engines.checkpoint import Manifest
from penstock.engines.state_files import Place, StateFiles
from penstock.operators.windows import Windows
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step
from penstock.stages.site import Site


def in_form(step: Step, done: Manifest, files: StateFiles, form: str) -> Mapping[int, Place]:
    """Where the state of a step is, once its windows have the form asked for."""
    places = done.state[step.name]
    if not isinstance(step.op, Windows) or not places:
        return places
    from penstock.stages.patterns.forms import form_of, reformed

    one = next(iter(places))
    (piece,) = files.read({one: places[one]}, step.name).values()
    if form_of(piece, step.name) == form:
        return places
    site = Site(step.name, step.where, Accounts(), WallClock())
    pieces = reformed(files.read(places, step.name), form, step.op, step.up, site)
    return files.write(done.rounds, "again", {step.name: pieces})[step.name]
