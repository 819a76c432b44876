"""What the building blocks wrap: operators, distributions and splitting functions, by name.

The algebra never calls a function; it only says where each one stands. So a function here is its name
and its role, and an operator is WindFlow's triple of distribution, logic and number of replicas
(section 4.1). Imports nothing of ours but the errors.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from penstock.errors import GraphError
from penstock.frozen import dataclass

Composition = Literal["combined", "dedicated", "centralised"]
"""Where a distribution runs (WindFlow 5.3): in the node before it, in a node of its own per replica, or
in one node for all replicas."""


class Kind(StrEnum):
    """The type of an operator: the ten of WindFlow's Table 1, then ours."""

    SRC = "SRC"
    SNK = "SNK"
    M = "M"
    FM = "FM"
    F = "F"
    A = "A"
    KW = "KW"
    PW = "PW"
    PAW = "PAW"
    MRW = "MRW"
    WJ = "WJ"  # window join
    SJ = "SJ"  # join with a table
    P = "P"  # a process, with a driver loop of its own
    ID = "ID"  # a relay: passes rows on


NEVER_CHAINED = frozenset({Kind.SRC, Kind.A, Kind.WJ, Kind.P})
"""Kinds that always get a node of their own: they start a stream, gather rows by key or from two sides,
or drive themselves, and none of that can be a call from the node before."""


class Distribution(StrEnum):
    """How rows reach the replicas of an operator."""

    NONE = "none"
    FORWARD = "forward"
    KEY_BY = "keyby"
    BROADCAST = "broadcast"
    REBALANCE = "rebalance"
    COMPLEX = "complex"


class Splitting(StrEnum):
    """How a split chooses among its branches."""

    FUNCTION = "function"  # the user's
    COPY = "copy"  # every branch gets every row
    TAG = "tag"  # by the output that the operator marked: out, late, errors, a port


@dataclass(frozen=True, slots=True)
class Function:
    """A name and a role; for a distribution, the name is that of the operator it leads to.

    >>> str(Function("views", Kind.KW)), str(Function("views", Distribution.KEY_BY))
    ('views', 'D_keyby')
    """

    name: str
    role: Kind | Distribution | Splitting

    def __str__(self) -> str:
        if isinstance(self.role, Distribution):
            return f"D_{self.role}"
        if isinstance(self.role, Splitting):
            return f"S_{self.name}"
        return self.name


@dataclass(frozen=True, slots=True)
class Operator:
    """WindFlow's triple: how rows are distributed to it, what it does, and in how many replicas."""

    name: str
    kind: Kind
    n: int = 1
    distribution: Distribution = Distribution.FORWARD

    def __post_init__(self) -> None:
        if self.n < 1:
            raise GraphError(
                f'"{self.name}" has {self.n} replicas', step=self.name, hint="use parallelism=1 or more"
            )

    @property
    def logic(self) -> Function:
        """The paper's f_op."""
        return Function(self.name, self.kind)

    @property
    def routing(self) -> Function:
        """The paper's f_d."""
        return Function(self.name, self.distribution)
