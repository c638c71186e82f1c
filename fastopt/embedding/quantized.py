"""`quantize_table`: a table in 8 bits an element, to be served and not trained."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastopt._arrays import contiguous, is_bfloat16, shape_tuple, shown
from fastopt._kernels import _memory, _quantized
from fastopt._kernels._step_memory import empty
from fastopt._storage import dense_array
from fastopt.autodiff import Differentiable

Array = np.ndarray[Any, Any]

_FLOAT32 = np.dtype(np.float32)
_TINY = np.finfo(np.float32).tiny
_TAIL = 8  # bytes of a row after its codes: float32 scale, float32 bias
_CHUNK = 1 << 18  # elements converted at a time, which the second cache holds


class QuantizedTable:
    """A table of which each row is stored as 8-bit codes, a scale and a bias.

    An element is ``scale * code + bias``, with the scale and the bias of its row, computed in
    float32. It is made by `quantize_table` or `QuantizedTable.from_fused`, and takes the place of
    a table in `embedding_lookup`, `embedding_lookup_sparse` and `safe_embedding_lookup_sparse`:
    they read the 8-bit rows and return float32, bit for bit what they return for the float32 table
    ``dequantize()``. It never changes, and nothing trains it.

    Attributes
    ----------
    shape : tuple of int
        That of the table, ``(rows, ...)``.
    dtype : dtype
        float32, that of look-ups.
    codes : ndarray, shape (rows, ...), uint8
        Read-only, as the two others are.
    scales : ndarray, shape (rows,), float32
        0 for rows whose elements are equal.
    biases : ndarray, shape (rows,), float32
        The least element of each row.
    nbytes : int
        The memory of the table: a row of w elements has ``w + 8``.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.quantize_table(np.array([[0.0, 1.0, 2.55], [7.0, 7.0, 7.0]]))
    >>> table.codes
    array([[  0, 100, 255],
           [  0,   0,   0]], dtype=uint8)
    >>> fo.embedding_lookup(table, [1, 0])
    array([[7.  , 7.  , 7.  ],
           [0.  , 1.  , 2.55]], dtype=float32)
    """

    __slots__ = ("_fused", "_shape")
    _fused: Array
    _shape: tuple[int, ...]
    __array_ufunc__ = None  # arithmetic on it would silently make the whole table

    def __init__(self) -> None:
        raise TypeError("a QuantizedTable is made by quantize_table or QuantizedTable.from_fused")

    @classmethod
    def _of(cls, fused: Array, shape: tuple[int, ...]) -> QuantizedTable:
        table = object.__new__(cls)
        fused.flags.writeable = False
        table._fused = fused
        table._shape = shape
        return table

    @classmethod
    def from_fused(cls, fused: Any, row_shape: tuple[int, ...] | None = None) -> QuantizedTable:
        """Return the table that an array of fused rows holds.

        Parameters
        ----------
        fused : array_like, shape (rows, width + 8), uint8
            Of each row the codes, then its float32 scale and its float32 bias, as FBGEMM and
            PyTorch's ``embedding_bag_byte_prepack`` make them. It is copied.
        row_shape : tuple of int, optional
            The shape of a row of ``width`` elements; ``(width,)`` by default.

        Raises
        ------
        TypeError
            If `fused` is not of uint8.
        ValueError
            If it is not of two axes with at least 8 columns, `row_shape` has another number of
            elements, or a scale or bias is not finite.

        Examples
        --------
        >>> import fastopt as fo
        >>> table = fo.quantize_table([[0.0, 1.0], [2.0, 4.0]])
        >>> fo.QuantizedTable.from_fused(table.to_fused()).dequantize()
        array([[0., 1.],
               [2., 4.]], dtype=float32)
        """
        array = dense_array(fused, "fused", None)
        if array.dtype != np.uint8:
            raise TypeError(f"fused must be of uint8, got dtype {array.dtype}")
        if array.ndim != 2 or array.shape[1] < _TAIL:
            raise ValueError(
                f"fused must have two axes, the second of at least {_TAIL} bytes, got shape "
                f"{array.shape}"
            )
        width = array.shape[1] - _TAIL
        axes = (width,) if row_shape is None else shape_tuple(row_shape, "row_shape")
        shape = (array.shape[0], *axes)
        if math.prod(shape[1:]) != width:
            raise ValueError(f"row_shape {row_shape} does not have {width} elements")
        own = _memory.empty(array.shape, np.uint8, 0)
        np.copyto(own, array)
        table = cls._of(own, shape)
        bad = ~(np.isfinite(table.scales) & np.isfinite(table.biases))
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"fused has a scale or bias that is not finite, first in row {row}: scale "
                f"{table.scales[row]}, bias {table.biases[row]}"
            )
        return table

    def to_fused(self) -> Array:
        """Return a read-only view of the rows as they are stored, shape ``(rows, width + 8)``.

        It is uint8: of each row the codes, then its float32 scale and its float32 bias. FBGEMM's
        and PyTorch's functions on 8-bit rows take it.
        """
        return self._fused

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32, the dtype of look-ups."""
        return _FLOAT32

    @property
    def nbytes(self) -> int:
        """The bytes of codes, scales and biases."""
        return self._fused.nbytes

    @property
    def codes(self) -> Array:
        """The codes, read-only."""
        codes: Array = self._fused[:, :-_TAIL].reshape(self._shape)
        return codes

    @property
    def scales(self) -> Array:
        """The scale of each row, read-only."""
        scales: Array = self._fused[:, -_TAIL:-4].view(np.float32)[:, 0]
        return scales

    @property
    def biases(self) -> Array:
        """The bias of each row, read-only."""
        biases: Array = self._fused[:, -4:].view(np.float32)[:, 0]
        return biases

    def dequantize(self) -> Array:
        """Return the whole table in float32, four times the memory."""
        out = _memory.empty(self._shape, _FLOAT32, 0)
        flat = out.reshape(self._shape[0], self._fused.shape[1] - _TAIL)
        for lo, hi in _chunks(self._fused):
            _quantized.lookup(self._fused, np.arange(lo, hi), None, None, None, flat[lo:hi])
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a QuantizedTable has no float32 memory to share; it makes a copy")
        out = self.dequantize()
        return out if dtype is None else out.astype(dtype, copy=False)

    def __len__(self) -> int:
        return self._shape[0]

    def __repr__(self) -> str:
        return f"QuantizedTable(shape={self._shape}, nbytes={self.nbytes})"

    def __reduce__(self) -> Any:
        return QuantizedTable.from_fused, (self._fused, self._shape[1:])

    def _read_rows(self, ids: Array) -> Array:
        """Return rows in float32; `ids` are 1-D and contiguous."""
        out = empty((ids.size, self._fused.shape[1] - _TAIL), _FLOAT32)
        _quantized.lookup(self._fused, ids, None, None, None, out)
        return out.reshape((ids.size, *self._shape[1:]))

    def _read_bags(
        self, ids: Array, offsets: Array, weights: Array | None, scales: Array | None
    ) -> Array:
        """Return ``scales[b] * sum(weights[k] * table[ids[k]])`` for each bag b."""
        n_bags = offsets.size - 1
        out = empty((n_bags, self._fused.shape[1] - _TAIL), _FLOAT32)
        _quantized.lookup(self._fused, ids, offsets, weights, scales, out)
        return out.reshape((n_bags, *self._shape[1:]))


def quantize_table(table: Any) -> QuantizedTable:
    """Round a table to 8 bits an element, row by row.

    With ``low`` and ``high`` the least and the largest element of a row, its scale is ``(high -
    low) / 255``, its bias ``low``, and the code of an element x is ``(x - low) * (255 / (high -
    low))``, rounded to the nearest integer, ties to even. Everything is computed in float32. A row
    of equal elements has scale 0 and is exact, and so is ``low`` in any row.

    Parameters
    ----------
    table : Variable, Tensor or array_like, shape (rows, ...)
        float16, bfloat16, float32 or float64. It does not change, and the result does not follow
        it.

    Returns
    -------
    QuantizedTable

    Raises
    ------
    TypeError
        If `table` is not of a floating dtype.
    ValueError
        If it has no axis of rows, or a row that is not finite in float32, or whose elements are
        farther apart than the largest float32.

    Notes
    -----
    An element is off by at most half the scale of its row, and by rounding errors of float32: a few
    units in the last place of the row's largest magnitude. Rows whose scale would be less than the
    smallest normal float32, of elements less than 3e-36 apart, count as rows of equal elements.

    The format is that of FBGEMM [1]_, and so are the codes of rows with ``high - low`` above 0.2.
    FBGEMM adds 1e-8 to that difference when it makes codes: some differ by one in rows with less,
    and below 1e-6 FBGEMM's do not reach 255.

    References
    ----------
    .. [1] D. Khudia et al., "FBGEMM: Enabling High-Performance Low-Precision Deep Learning
       Inference", 2021, arXiv:2101.05615; 8-bit rows: H. Guan et al., "Post-Training 4-bit
       Quantization on Embedding Tables", 2019, arXiv:1911.02079.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.array([[-1.0, 0.0, 1.0]], np.float32), name="served")
    >>> quantized = fo.quantize_table(table)
    >>> quantized.codes
    array([[  0, 128, 255]], dtype=uint8)
    >>> quantized.scales, quantized.biases
    (array([0.00784314], dtype=float32), array([-1.], dtype=float32))
    >>> fo.embedding_lookup_sparse(quantized, [[0, 0]], None, combiner="sum").round(3)
    array([[-2.   ,  0.008,  2.   ]], dtype=float32)
    """
    if isinstance(table, QuantizedTable):
        return table
    given = isinstance(table, Differentiable)
    name = f"table {table.name!r}" if given else "table"
    array = table._read() if given else dense_array(table, name, None)
    if array.dtype.kind != "f" and not is_bfloat16(array.dtype):
        raise TypeError(f"{name} must be of a floating dtype, got {array.dtype}: {shown(table)}")
    if array.ndim == 0:
        raise ValueError(f"{name} must have an axis of rows, got a 0-d array")
    width = math.prod(array.shape[1:])
    fused = _memory.empty((array.shape[0], width + _TAIL), np.uint8, 0)
    for lo, hi in _chunks(fused):
        with np.errstate(over="ignore"):  # becomes infinite, which is found
            rows = array[lo:hi].astype(_FLOAT32).reshape(hi - lo, width)
        _quantize(contiguous(rows), fused[lo:hi], lo, name)
    return QuantizedTable._of(fused, array.shape)


def _chunks(fused: Array) -> list[tuple[int, int]]:
    step = max(1, _CHUNK // fused.shape[1])
    n_rows = fused.shape[0]
    return [(lo, min(n_rows, lo + step)) for lo in range(0, n_rows, step)]


def _quantize(rows: Array, fused: Array, first: int, name: str) -> None:
    """Quantize float32 rows, the first of which is row `first`; changes them."""
    if rows.shape[1] == 0:
        fused[...] = 0
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # NaN spreads through both. Adding 0 makes one zero of two, whichever of them was found.
        low, high = rows.min(axis=1) + np.float32(0), rows.max(axis=1)
        span = high - low
    bad = ~np.isfinite(span)  # so are spans of infinities
    if bad.any():
        row = int(np.argmax(bad))
        if np.isfinite(rows[row]).all():
            what = f"has elements too far apart for float32: from {low[row]} to {high[row]}"
        else:
            element = rows[row][~np.isfinite(rows[row])][0]
            what = f"is not finite in float32: it has {element}"
        raise ValueError(f"row {first + row} of {name} {what}")
    scale = span / np.float32(255)
    scale[scale < _TINY] = 0
    factor = np.divide(np.float32(255), span, out=np.zeros_like(span), where=scale > 0)
    rows -= low[:, None]
    rows *= factor[:, None]
    fused[:, :-_TAIL] = np.rint(rows, out=rows)
    fused[:, -_TAIL:-4] = scale[:, None].view(np.uint8)
    fused[:, -4:] = low[:, None].view(np.uint8)
