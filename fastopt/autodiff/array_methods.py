"""The methods of an array, for what NumPy's functions work on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np


class ArrayMethods:
    """Methods and properties of `numpy.ndarray`, made of NumPy's functions."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __array__(
            self, dtype: Any = None, copy: bool | None = None
        ) -> np.ndarray[Any, Any]: ...

    @property
    def T(self) -> Any:
        """The transpose."""
        return np.transpose(self)

    @property
    def mT(self: Any) -> Any:
        """The transpose of the last two axes."""
        if self.ndim < 2:
            raise ValueError(f"matrix transpose needs at least two axes, got shape {self.shape}")
        return np.swapaxes(self, -1, -2)

    def reshape(self, *shape: Any, order: Any = "C") -> Any:
        """Return the value in another shape; see `numpy.reshape`."""
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, order=order)

    def ravel(self, order: Any = "C") -> Any:
        """Return the value with one axis; see `numpy.ravel`."""
        return np.ravel(self, order=order)

    def flatten(self, order: Any = "C") -> Any:
        """Return the value with one axis; see `numpy.ravel`."""
        return np.ravel(self, order=order)

    def transpose(self, *axes: Any) -> Any:
        """Return the value with its axes permuted; see `numpy.transpose`."""
        single = len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
        return np.transpose(self, axes[0] if single else axes or None)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """Return the value with two axes swapped; see `numpy.swapaxes`."""
        return np.swapaxes(self, axis1, axis2)

    def squeeze(self, axis: Any = None) -> Any:
        """Return the value without axes of length one; see `numpy.squeeze`."""
        return np.squeeze(self, axis=axis)

    def sum(
        self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False
    ) -> Any:
        """Return the sum; see `numpy.sum`."""
        return np.sum(self, axis=axis, dtype=dtype, out=out, keepdims=keepdims)

    def prod(
        self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False
    ) -> Any:
        """Return the product; see `numpy.prod`."""
        return np.prod(self, axis=axis, dtype=dtype, out=out, keepdims=keepdims)

    def mean(
        self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False
    ) -> Any:
        """Return the mean; see `numpy.mean`."""
        return np.mean(self, axis=axis, dtype=dtype, out=out, keepdims=keepdims)

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        keepdims: bool = False,
    ) -> Any:
        """Return the variance; see `numpy.var`."""
        return np.var(self, axis=axis, dtype=dtype, out=out, ddof=ddof, keepdims=keepdims)

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: float = 0,
        keepdims: bool = False,
    ) -> Any:
        """Return the standard deviation; see `numpy.std`."""
        return np.std(self, axis=axis, dtype=dtype, out=out, ddof=ddof, keepdims=keepdims)

    def max(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Return the maximum; see `numpy.max`."""
        return np.max(self, axis=axis, out=out, keepdims=keepdims)

    def min(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
        """Return the minimum; see `numpy.min`."""
        return np.min(self, axis=axis, out=out, keepdims=keepdims)

    def cumsum(self, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
        """Return the running sum; see `numpy.cumsum`."""
        return np.cumsum(self, axis=axis, dtype=dtype, out=out)

    def dot(self, other: Any) -> Any:
        """Return the dot product; see `numpy.dot`."""
        return np.dot(self, other)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Return the value limited to an interval; see `numpy.clip`."""
        return np.clip(self, min, max)

    def take(self, indices: Any, axis: int | None = None) -> Any:
        """Return elements along an axis; see `numpy.take`."""
        return np.take(self, indices, axis=axis)

    def repeat(self, repeats: Any, axis: int | None = None) -> Any:
        """Return the value with elements repeated; see `numpy.repeat`."""
        return np.repeat(self, repeats, axis=axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """Return diagonals; see `numpy.diagonal`."""
        return np.diagonal(self, offset=offset, axis1=axis1, axis2=axis2)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """Return the sum along diagonals; see `numpy.trace`."""
        return np.trace(self, offset=offset, axis1=axis1, axis2=axis2)

    def copy(self) -> Any:
        """Return a copy through which gradients flow."""
        return np.copy(self)

    def argmax(self, axis: int | None = None) -> Any:
        """Return where the maximum is, as a plain array; see `numpy.argmax`."""
        return np.argmax(self, axis=axis)

    def argmin(self, axis: int | None = None) -> Any:
        """Return where the minimum is, as a plain array; see `numpy.argmin`."""
        return np.argmin(self, axis=axis)

    def argsort(self, axis: int = -1, kind: Any = None) -> Any:
        """Return the order that sorts, as a plain array; see `numpy.argsort`."""
        return np.argsort(self, axis=axis, kind=kind)

    def all(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Say whether all elements are true, as a plain array; see `numpy.all`."""
        return np.all(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Say whether any element is true, as a plain array; see `numpy.any`."""
        return np.any(self, axis=axis, keepdims=keepdims)

    def round(self, decimals: int = 0) -> Any:
        """Return rounded values, as a plain array; see `numpy.round`."""
        return np.round(self, decimals)
