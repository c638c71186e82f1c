"""What replicas hand to each other."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from fastopt._arrays import shown


class ReduceOp(enum.Enum):
    """How the values of all replicas become one.

    Attributes
    ----------
    SUM
        Added, in the order of the replicas.
    MEAN
        Added, then divided by the number of replicas: also of those that have nothing to add.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.distribute.ReduceOp("mean") is fo.distribute.ReduceOp.MEAN
    True
    """

    SUM = "sum"
    MEAN = "mean"


def as_reduce_op(value: Any, name: str) -> ReduceOp:
    """Return the operation that is meant: a `ReduceOp` or its name in letters of any case."""
    if isinstance(value, ReduceOp):
        return value
    if isinstance(value, str) and value.lower() in ("sum", "mean"):
        return ReduceOp(value.lower())
    raise ValueError(f"{name} must be ReduceOp.SUM or ReduceOp.MEAN, got {shown(value)}")


class PerReplica(Sequence[Any]):
    """One value for each replica, in the order of the replicas.

    Parameters
    ----------
    values : iterable
        The values.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.distribute.PerReplica(["a", "b"])[1]
    'b'
    """

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = tuple(values)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values."""
        return self._values

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._values[index]

    def __len__(self) -> int:
        """Return the number of replicas."""
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"PerReplica({', '.join(shown(value) for value in self._values)})"
