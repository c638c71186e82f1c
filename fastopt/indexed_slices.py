"""`IndexedSlices`: the rows of a gradient that are not zero."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np

from fastopt import _sparse
from fastopt._arrays import contiguous, index_array, real_array, shape_tuple, shown
from fastopt._kernels._grouping import Grouping, find_out_of_range
from fastopt._kernels._rows import scatter_add

Array = np.ndarray[Any, Any]
Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]

_SCATTERED = (np.dtype(np.float32), np.dtype(np.float64))
_LARGE = 100_000_000
_MOST_ROWS = np.iinfo(np.int64).max


class IndexedSlices:
    """A sparse set of rows of a larger array, the gradient of a look-up.

    Row ``indices[k]`` of the array that is meant gets ``values[k]``; rows that are not listed are
    zero. An index may be listed several times, in any order: its rows add up, in the order in which
    they stand.

    Parameters
    ----------
    values : array_like, shape (n, ...)
        The rows, real numbers. The array is not copied unless its layout forces it.
    indices : array_like of int, shape (n,)
        The row numbers. int32 stays int32; every other integer dtype becomes int64.
    dense_shape : sequence of int, optional
        The shape of the array that is meant. Without it the slices can train a variable, but not be
        made dense.

    Raises
    ------
    TypeError
        If the values are not real numbers or the indices are not integers: a mask or rounded floats
        are no row numbers.
    ValueError
        If the values have no axis, there are not as many indices as rows of values, or the rows do
        not fit into `dense_shape`.
    IndexError
        If `dense_shape` is given and an index is negative or beyond its rows.

    Notes
    -----
    TensorFlow's class of this name checks nothing, and has no arithmetic. The arrays may be shared
    with the caller, who should not change them while the slices are in use.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> s = fo.IndexedSlices(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), [2, 0, 2], (4, 2))
    >>> s.to_dense()
    array([[3., 4.],
           [0., 0.],
           [6., 8.],
           [0., 0.]])
    >>> s.coalesce().indices
    array([2, 0])
    """

    __slots__ = ("_values", "_indices", "_dense_shape", "_grouping", "__weakref__")

    # NumPy must not take the slices for an object scalar in `array * slices`.
    __array_ufunc__ = None

    _values: Array
    _indices: Array
    _dense_shape: tuple[int, ...] | None
    _grouping: Grouping | None

    def __init__(
        self,
        values: Any,
        indices: Any,
        dense_shape: Sequence[SupportsIndex] | Array | None = None,
    ) -> None:
        values = real_array(values, "values")
        if values.ndim == 0:
            raise ValueError("values need at least one axis, that of the rows; got a 0-d array")
        indices = index_array(indices, "indices")
        if values.shape[0] != indices.shape[0]:
            raise ValueError(
                f"values hold {values.shape[0]} rows (shape {values.shape}) but there are "
                f"{indices.shape[0]} indices"
            )
        self._values = values
        self._indices = indices
        self._dense_shape = None
        self._grouping = None
        if dense_shape is not None:
            shape = shape_tuple(dense_shape, "dense_shape")
            if len(shape) != values.ndim or shape[1:] != values.shape[1:]:
                raise ValueError(
                    f"rows of values of shape {values.shape} do not fit into dense_shape {shape}"
                )
            self._dense_shape = shape
            self.check_range(shape[0])

    @classmethod
    def _unchecked(
        cls, values: Array, indices: Array, dense_shape: tuple[int, ...] | None = None
    ) -> IndexedSlices:
        """Make slices of arrays that are known to fit, without the constructor's checks.

        `values` are real, native and aligned, `indices` int32 or int64, 1-D and C-contiguous.
        """
        self = cls.__new__(cls)
        self._values = values
        self._indices = indices
        self._dense_shape = dense_shape
        self._grouping = None
        return self

    # ------------------------------------------------------------------ what it is

    @property
    def values(self) -> Array:
        """The rows, shape (n, ...)."""
        return self._values

    @property
    def indices(self) -> Array:
        """The row numbers, shape (n,), int32 or int64."""
        return self._indices

    @property
    def dense_shape(self) -> tuple[int, ...] | None:
        """The shape of the array that is meant, or None if it is not known."""
        return self._dense_shape

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The same as `dense_shape`."""
        return self._dense_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        dtype: np.dtype[Any] = self._values.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """The number of axes of the array that is meant."""
        return self._values.ndim

    def __len__(self) -> int:
        """Return the number of stored rows, repeated ones counted as often as they stand."""
        n: int = self._indices.shape[0]
        return n

    def __bool__(self) -> bool:
        """Return True: a gradient without rows is still a gradient."""
        return True

    def __repr__(self) -> str:
        with np.printoptions(threshold=20, edgeitems=2, precision=6):
            values = np.array2string(self._values, separator=", ", prefix=" " * 21)
            indices = np.array2string(self._indices, separator=", ", prefix=" " * 22)
        shape = "" if self._dense_shape is None else f", dense_shape={self._dense_shape}"
        return (
            f"IndexedSlices(values={values},\n              indices={indices}{shape}, "
            f"dtype={self._values.dtype})"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Refuse: a table-sized array is not made behind the caller's back."""
        raise TypeError(
            "IndexedSlices are not made a dense array silently; call to_dense(), or use .values"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexedSlices, (self._values, self._indices, self._dense_shape)

    # ------------------------------------------------------------------ rows

    def check_range(self, n_rows: int, name: str = "indices") -> None:
        """Check that every index is a row number of an array of `n_rows` rows.

        Parameters
        ----------
        n_rows : int
            The number of rows there are.
        name : str, default "indices"
            What the slices are called in the message.

        Raises
        ------
        IndexError
            If an index is negative or not less than `n_rows`. The message names the first such
            index, its position and the number of rows.
        """
        position = find_out_of_range(self._indices, n_rows)
        if position >= 0:
            raise IndexError(
                f"{name}: index {int(self._indices[position])} at position {position} is out of "
                f"range for {n_rows} rows"
            )

    def grouping(self, n_rows: int) -> Grouping:
        """Return which of the stored rows share an index, for an array of `n_rows` rows.

        It is computed once and remembered, so that several passes over the same slices share it.

        Raises
        ------
        IndexError
            If an index is out of range.
        """
        grouping = self._grouping
        if grouping is None or grouping.n_rows != n_rows:
            self.check_range(n_rows)
            grouping = self._grouping = Grouping(self._indices, n_rows)
        return grouping

    def coalesce(self, sort: bool = False) -> IndexedSlices:
        """Return slices that stand for the same array and list every index once.

        Parameters
        ----------
        sort : bool, default False
            Order the rows by index. Otherwise they keep the order in which an index first appears,
            as TensorFlow has it.

        Returns
        -------
        IndexedSlices
            Rows of one index are added in the order in which they stand, in the dtype of the values
            (float16 in float32, so that a sum does not overflow half-way).

        Raises
        ------
        IndexError
            If an index is negative.
        """
        values = self._values.astype(np.float32) if self.dtype == np.float16 else self._values
        summed, indices = self.grouping(self._known_rows()).sum_rows(values, sort)
        return self._unchecked(summed.astype(self.dtype, copy=False), indices, self._dense_shape)

    def _coalesced_times(self, factor: float) -> IndexedSlices:
        """Return `coalesce` times a number, in one pass; of float32 or float64."""
        grouping = self.grouping(self._known_rows())
        values, indices = grouping.sum_rows(self._values, False, factor)
        return self._unchecked(values, indices, self._dense_shape)

    def to_dense(self) -> Array:
        """Return the array that is meant: zeros, and the rows added at their indices in order.

        Raises
        ------
        ValueError
            If `dense_shape` is not known.
        MemoryError
            If an array of `dense_shape` cannot be had.

        Warns
        -----
        UserWarning
            If the array has 100 million elements or more, as TensorFlow warns.
        """
        if self._dense_shape is None:
            raise ValueError("to_dense() needs a dense_shape; these slices were made without one")
        size = math.prod(self._dense_shape)
        if size >= _LARGE:
            warnings.warn(
                f"IndexedSlices of {len(self)} rows are made a dense array of {size} elements",
                stacklevel=2,
            )
        dense = np.zeros(self._dense_shape, self.dtype)
        if self.dtype in _SCATTERED:
            scatter_add(dense, self._indices, contiguous(self._values))
        else:
            rows = self.coalesce()
            dense[rows._indices] = rows._values
        return dense

    def _known_rows(self) -> int:
        """Return a number of rows that all indices are within."""
        if self._dense_shape is not None:
            return self._dense_shape[0]
        # The last int64 is no row number of any array: a count of rows would not fit into int64.
        return min(int(self._indices.max()) + 1, _MOST_ROWS) if self._indices.size else 0

    # ------------------------------------------------------------------ arithmetic

    def astype(self, dtype: Any, casting: Casting = "same_kind") -> IndexedSlices:
        """Return the slices with values of another dtype, sharing the indices.

        Raises
        ------
        TypeError
            If NumPy's `casting` rule forbids the cast.
        """
        target = np.dtype(dtype)
        if target == self._values.dtype:
            return self
        return self._with_values(self._values.astype(target, casting=casting))

    def _with_values(self, values: Array) -> IndexedSlices:
        """Return slices of other values at the same indices; what is known of these is kept."""
        other = self._unchecked(values, self._indices, self._dense_shape)
        other._grouping = self._grouping
        return other

    def __neg__(self) -> IndexedSlices:
        return self._with_values(-self._values)

    def __pos__(self) -> IndexedSlices:
        return self

    def __mul__(self, other: Any) -> IndexedSlices:
        scalar = _scalar(other)
        if scalar is None:
            return NotImplemented
        return self._with_values(np.multiply(self._values, scalar))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> IndexedSlices:
        scalar = _scalar(other)
        if scalar is None:
            return NotImplemented
        return self._with_values(np.true_divide(self._values, scalar))

    def __add__(self, other: Any) -> IndexedSlices:
        if not isinstance(other, IndexedSlices):
            return NotImplemented
        return self.concatenate([self, other])

    def __sub__(self, other: Any) -> IndexedSlices:
        if not isinstance(other, IndexedSlices):
            return NotImplemented
        return self.concatenate([self, -other])

    @classmethod
    def concatenate(cls, slices: Iterable[IndexedSlices]) -> IndexedSlices:
        """Return the sum of several slices of one array: their rows, one after the other.

        Nothing is merged or sorted. `dense_shape` is the first that is known; int32 and int64
        indices together become int64.

        Parameters
        ----------
        slices : iterable of IndexedSlices
            At least one, all with rows of one shape.

        Raises
        ------
        ValueError
            If there are none, or their rows or dense shapes differ.
        TypeError
            If one of them is not an `IndexedSlices`.

        Examples
        --------
        >>> import fastopt as fo
        >>> a = fo.IndexedSlices([[1.0]], [0], (3, 1))
        >>> fo.IndexedSlices.concatenate([a, 2 * a]).indices
        array([0, 0])
        """
        terms = list(slices)
        if not terms:
            raise ValueError("concatenate() needs at least one IndexedSlices")
        shape: tuple[int, ...] | None = None
        for k, term in enumerate(terms):
            if not isinstance(term, IndexedSlices):
                raise TypeError(f"slices[{k}] must be an IndexedSlices, got {shown(term)}")
            if term._values.shape[1:] != terms[0]._values.shape[1:]:
                raise ValueError(
                    f"slices[{k}] has rows of shape {term._values.shape[1:]}, the first has "
                    f"{terms[0]._values.shape[1:]}"
                )
            if shape is None:
                shape = term._dense_shape
            elif term._dense_shape not in (None, shape):
                raise ValueError(f"slices[{k}] has dense_shape {term._dense_shape}, not {shape}")
        if len(terms) == 1:
            return terms[0]
        values = np.concatenate([term._values for term in terms])
        indices = np.concatenate([term._indices for term in terms])
        return cls._unchecked(values, indices, shape)

    # ------------------------------------------------------------------ scipy.sparse

    @classmethod
    def from_scipy(cls, matrix: Any) -> IndexedSlices:
        """Return the rows of a scipy.sparse matrix or array that have a stored entry.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array
            Of any format. Entries may be unsorted, repeated (they add up in their order) or zero
            (the row is listed all the same). The matrix is not changed.

        Returns
        -------
        IndexedSlices
            Indices rise, each listed once. Of a one-dimensional array the entries are listed as
            they are stored.

        Raises
        ------
        TypeError
            If `matrix` is not sparse or its entries are not real numbers.
        ValueError
            If `matrix` is malformed.

        Examples
        --------
        >>> import fastopt as fo
        >>> import scipy.sparse
        >>> m = scipy.sparse.csr_array(([1.0, 2.0], [1, 0], [0, 0, 2, 2]), shape=(3, 2))
        >>> s = fo.IndexedSlices.from_scipy(m)
        >>> s.indices, s.values
        (array([1]), array([[2., 1.]]))
        """
        if not _sparse.is_scipy_sparse(matrix):
            raise TypeError(f"from_scipy() needs a scipy.sparse matrix, got {shown(matrix)}")
        return cls._unchecked(*_sparse.rows_of_scipy(matrix, "the matrix"))

    def to_scipy(self) -> Any:
        """Return a `scipy.sparse.csr_array` (of 1-D slices a `coo_array`) of the same content.

        Every element of a listed row is stored, zeros too, so that `from_scipy` gives the rows
        back.

        Raises
        ------
        ValueError
            If `dense_shape` is not known or has more than two axes.
        TypeError
            If scipy has no sparse arrays of this dtype (float16).
        """
        import scipy.sparse

        if self._dense_shape is None:
            raise ValueError("to_scipy() needs a dense_shape; these slices were made without one")
        if self.ndim > 2:
            raise ValueError(f"scipy.sparse has no arrays of dense_shape {self._dense_shape}")
        if self.dtype == np.float16:
            raise TypeError("scipy.sparse has no float16; use astype() first")
        rows = self.coalesce(sort=True)
        if self.ndim == 1:
            return scipy.sparse.coo_array((rows._values, (rows._indices,)), shape=self._dense_shape)
        n_rows, width = self._dense_shape
        counts = np.zeros(n_rows + 1, np.int64)
        counts[rows._indices.astype(np.int64) + 1] = width
        columns = np.tile(np.arange(width), len(rows))
        return scipy.sparse.csr_array(
            (rows._values.reshape(-1), columns, np.cumsum(counts)), shape=self._dense_shape
        )


def _scalar(value: Any) -> float | int | None:
    """Return a number or 0-d array as a Python number, None if it is neither.

    As a Python number it takes the dtype of the values instead of widening float32 to float64.
    """
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return float(value)  # numpy.float64 is a float, but one that widens float32
    if (
        isinstance(value, (np.ndarray, np.generic))
        and value.ndim == 0
        and value.dtype.kind in "fiu"
    ):
        number: float | int = value.item()
        return number
    return None


def values_of(gradient: Array | IndexedSlices) -> Array:
    """Return the array of a gradient; of slices, that of their rows."""
    return gradient.values if isinstance(gradient, IndexedSlices) else gradient


def with_values(gradient: Array | IndexedSlices, values: Array) -> Array | IndexedSlices:
    """Return a gradient of the same kind with other numbers; itself if they are its own."""
    if isinstance(gradient, IndexedSlices):
        return gradient if values is gradient.values else gradient._with_values(values)
    return values
