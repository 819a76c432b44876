"""How the states of one step are saved: which classes they may hold, and what they depend on.

State is taken up again only by a step with the same operator, function, key and input; what the function does
inside may change. A state that cannot be saved is an error when a snapshot is asked for, and not before: a
run without a checkpoint may keep anything.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.caller import name_of
from penstock.errors import CheckpointError
from penstock.operators.function import RowFunction
from penstock.operators.op import Op
from penstock.operators.stream import Stream
from penstock.stages.saved_state import HINT
from penstock.stages.saved_values import CannotSave, Loading, Saving
from penstock.stages.site import Site
from penstock.stages.state_classes import classes_of

_SAVED = pa.schema([("place", pa.int64()), ("state", pa.binary())])


class StateFormat:
    """The states of one step as columns of a snapshot."""

    def __init__(
        self, op: Op, up: Stream, site: Site, function: RowFunction, new_state: Callable[[], Any]
    ) -> None:
        self._up, self._site, self._function, self._new_state = up, site, function, new_state
        self.depends_on = {
            "operator": type(op).__name__,
            "key": ", ".join(up.key),
            "function": function.name,
            "input schema": ", ".join(f"{field.name}: {field.type}" for field in up.schema),
            "time": str(up.time),
        }

    @cached_property
    def _classes(self) -> Mapping[str, type]:
        """The classes that states may hold; a new state is made to look at it."""
        return classes_of(self._new_state(), _given_by(self._function.call), _given_by(self._new_state))

    def saved(self, states: Mapping[int, Any], keys: pa.RecordBatch) -> pa.RecordBatch:
        """States by the place of their key, as columns."""
        saving = Saving(self._classes)
        coded = []
        for place, state in states.items():
            try:
                coded.append(saving.bytes_of(state))
            except CannotSave as problem:
                raise self._refused(problem, keys.slice(place, 1)) from None
        return pa.RecordBatch.from_arrays(
            [pa.array(list(states), pa.int64()), pa.array(coded, pa.binary())], schema=_SAVED
        )

    def loaded(self, saved: pa.RecordBatch) -> dict[int, Any]:
        """The states by the place of their key."""
        loading = Loading(self._classes, self._up.schema)
        places = np.asarray(saved.column("place").to_numpy(), np.int64)
        try:
            states = [loading.state_of(data.as_py()) for data in saved.column("state")]
        except CannotSave as problem:
            raise CheckpointError(
                f'a saved state of step "{self._site.step}" cannot be taken up: {problem}',
                step=self._site.step,
                where=self._function.where,
                hint=HINT,
            ) from None
        return dict(zip(places.tolist(), states, strict=True))

    def _refused(self, problem: CannotSave, key: pa.RecordBatch) -> CheckpointError:
        shown = ", ".join(
            f"{name}={column[0].as_py()!r:.80}"
            for name, column in zip(self._up.key, key.columns, strict=True)
        )
        return CheckpointError(
            f"the state that {self._function.name} keeps for {shown} cannot be saved: {problem}",
            step=self._site.step,
            where=self._function.where or self._site.where,
            detail="saved state holds plain values, lists, dicts, sets, rows, and dataclasses of these",
            hint=f"keep such values in the state that {name_of(self._new_state)} begins,"
            " or run without checkpoint=",
        )


def _given_by(function: Callable[..., Any]) -> object:
    """What a function is annotated to give; None when it does not say, or only a type checker can tell."""
    try:
        return typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        return None
