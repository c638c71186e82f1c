"""Constraints: where the weights of a variable may be, for ``Variable(constraint=...)``.

After a dense update an optimizer calls the constraint with the variable, and assigns what it
returns. With a sparse gradient that is refused, as in TensorFlow, because a constraint may look at
all rows, and a step would cost the whole table. But a constraint that looks at one row at a time
says so by an attribute ``rows`` that is True. Then, after a sparse update, it is called with an
array of the rows that were updated, each once, and must return an array of that shape, in which row
k depends on row k alone.

Names, arguments and defaults are those of ``tf.keras.constraints``. Constraints on norms take the
norm along `axis`, by default 0: of a matrix, the norm of each column, for which no row stands
alone. For the rows of an embedding table give ``axis=1``.

Weights that are within the constraint keep their bits. (TensorFlow multiplies them by
``norm / (norm + 1e-7)``.)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from fastopt._arrays import compute_dtype, shown
from fastopt._validate import Real

__all__ = [
    "MaxNorm",
    "MinMaxNorm",
    "NonNeg",
    "UnitNorm",
    "max_norm",
    "min_max_norm",
    "non_neg",
    "unit_norm",
]

Array = np.ndarray[Any, Any]


class NonNeg:
    """Weights are not negative: those that are become 0.

    Attributes
    ----------
    rows : bool
        True: it acts row by row.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([0.1, 0.5]), constraint=fo.constraints.NonNeg())
    >>> done = fo.GradientDescentOptimizer(0.25).apply_gradients([(np.ones(2), w)])
    >>> w.numpy()
    array([0.  , 0.25])
    """

    rows = True

    def __call__(self, w: Any) -> Array:
        """Return the weights within the constraint, in their dtype."""
        array = np.asarray(w)
        return np.where(array < 0, array.dtype.type(0), array)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {}

    def __repr__(self) -> str:
        return "NonNeg()"


class MinMaxNorm:
    """L2 norms are between two bounds: other vectors are scaled towards them.

    A vector of norm n outside the bounds gets the norm ``rate * bound + (1 - rate) * n``. One of
    norm 0 stays 0, since it has no direction.

    Parameters
    ----------
    min_value, max_value : float
        The bounds, not negative.
    rate : float, default 1
        In (0, 1]: how much of the way to the bound is gone at each update.
    axis : int or sequence of int, default 0
        The axes along which norms are taken.

    Attributes
    ----------
    rows : bool
        Whether it acts row by row: all axes are greater than 0.

    Raises
    ------
    TypeError
        If an argument is of another type.
    ValueError
        If a number is out of its bounds, or `max_value` less than `min_value`.
    """

    def __init__(
        self,
        min_value: float = 0.0,
        max_value: float = 1.0,
        rate: float = 1.0,
        axis: SupportsIndex | Sequence[SupportsIndex] = 0,
    ) -> None:
        owner = type(self).__name__
        self._low = Real(ge=0, fixed=True).accept(owner, "min_value", min_value)
        self._high = Real(ge=self._low, fixed=True).accept(owner, "max_value", max_value)
        self._rate = Real(gt=0, le=1, fixed=True).accept(owner, "rate", rate)
        self._axis = _axes(owner, axis)

    @property
    def rows(self) -> bool:
        """Whether it acts row by row."""
        return all(axis > 0 for axis in self._axis)

    def __call__(self, w: Any) -> Array:
        """Return the weights within the constraint, in their dtype."""
        array = np.asarray(w)
        wide = array.astype(compute_dtype(array.dtype), copy=False)
        # In float64: the squares of float32 leave its range long before the weights do.
        norms = np.sqrt(np.sum(np.square(wide, dtype=np.float64), self._axis, keepdims=True))
        wanted = self._rate * np.clip(norms, self._low, self._high) + (1 - self._rate) * norms
        outside = ((norms < self._low) | (norms > self._high)) & (norms > 0)
        factors = np.divide(wanted, norms, out=np.ones_like(norms), where=outside)
        scaled = np.multiply(wide, factors.astype(wide.dtype))
        return scaled.astype(array.dtype, copy=False)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "min_value": self._low,
            "max_value": self._high,
            "rate": self._rate,
            "axis": self._axis,
        }

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


class MaxNorm(MinMaxNorm):
    """L2 norms are at most `max_value`: longer vectors are scaled down.

    Parameters
    ----------
    max_value : float, default 2
        The bound, not negative.
    axis : int or sequence of int, default 0
        The axes along which norms are taken.

    Attributes
    ----------
    rows : bool
        Whether it acts row by row: all axes are greater than 0.

    Raises
    ------
    TypeError
        If an argument is of another type.
    ValueError
        If `max_value` is negative or not finite.

    Examples
    --------
    The rows of a table, after a sparse gradient only those that were updated:

    >>> import numpy as np
    >>> import fastopt as fo
    >>> short = fo.constraints.MaxNorm(5.0, axis=1)
    >>> table = fo.Variable(np.zeros((3, 2)), name="table", constraint=short)
    >>> gradient = fo.IndexedSlices(np.array([[-6.0, -8.0]]), [1])
    >>> done = fo.GradientDescentOptimizer(1.0).apply_gradients([(gradient, table)])
    >>> table.numpy()[1]
    array([3., 4.])
    """

    def __init__(
        self, max_value: float = 2.0, axis: SupportsIndex | Sequence[SupportsIndex] = 0
    ) -> None:
        super().__init__(0.0, max_value, 1.0, axis)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"max_value": self._high, "axis": self._axis}


class UnitNorm(MinMaxNorm):
    """L2 norms are 1. A vector of norm 0 stays 0.

    Parameters
    ----------
    axis : int or sequence of int, default 0
        The axes along which norms are taken.

    Attributes
    ----------
    rows : bool
        Whether it acts row by row: all axes are greater than 0.

    Raises
    ------
    TypeError
        If `axis` is no axis.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.constraints.UnitNorm(axis=1)([[3.0, 4.0], [0.0, 0.0]])
    array([[0.6, 0.8],
           [0. , 0. ]])
    """

    def __init__(self, axis: SupportsIndex | Sequence[SupportsIndex] = 0) -> None:
        super().__init__(1.0, 1.0, 1.0, axis)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"axis": self._axis}


non_neg = NonNeg
max_norm = MaxNorm
unit_norm = UnitNorm
min_max_norm = MinMaxNorm


def acts_on_rows(constraint: Any) -> bool:
    """Say whether a constraint may be applied to some rows of a variable alone."""
    return getattr(constraint, "rows", False) is True


def _axes(owner: str, axis: Any) -> tuple[int, ...]:
    try:
        return (operator.index(axis),)
    except TypeError:
        pass
    try:
        axes = tuple(operator.index(each) for each in axis)
    except TypeError:
        axes = ()
    if not axes:
        raise TypeError(
            f"{owner}: axis must be an int or a sequence of ints, got {shown(axis)}"
        ) from None
    return axes
