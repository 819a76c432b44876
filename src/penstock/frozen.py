"""Frozen data: Python's own dataclasses, and classes that differ in class variables."""

from __future__ import annotations

from dataclasses import dataclass as dataclass  # noqa: PLC0414  # it may be imported from here


class ClassVariables:
    """The base of families whose classes differ in class variables, written beside the base of each.

    >>> class Sign(ClassVariables):
    ...     text: str
    >>> class Plus(Sign, text="+"):
    ...     pass
    >>> Plus.text
    '+'
    """

    __slots__ = ()

    def __init_subclass__(cls, **variables: object) -> None:
        super().__init_subclass__()
        for name, value in variables.items():
            setattr(cls, name, value)
