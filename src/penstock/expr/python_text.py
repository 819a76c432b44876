"""Functions of our own whose text depends on a schema or an expression, and is written when that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_NAME = f"{__file__} (written)"  # under our own folder, so that stacks show users their own frames only


def written_as(name: str, text: str, space: Mapping[str, object] | None = None) -> Callable[..., Any]:
    """The function of that name which a text defines.

    text   our own: what users wrote is in it as `repr` only
    space  the names that it uses
    """
    names: dict[str, Any] = dict(space or {})
    exec(compile(text, _NAME, "exec"), names)  # noqa: S102  # see above
    found: Callable[..., Any] = names[name]
    return found
