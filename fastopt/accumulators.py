"""Accumulators: gradients of several workers, summed until there are enough of them.

Any thread may put gradients in, and any thread may wait for a number of them. Each gradient is
stamped with the step for which it was computed; one that is older than the accumulator's step is
dropped.
"""

from __future__ import annotations

import logging
import numbers
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from fastopt._arrays import cast_real, dtype_of, shown
from fastopt._sums import Collected, DenseSum, SlicesSum, SumState, sum_of
from fastopt.conversion import as_gradient
from fastopt.indexed_slices import IndexedSlices

Array = np.ndarray[Any, Any]
T = TypeVar("T")

_REDUCTIONS = ("MEAN", "SUM")
_log = logging.getLogger(__name__)


class Accumulator:
    """A sum of gradients, how many they are, a step, and threads that wait."""

    _kind: ClassVar[type[Array] | type[IndexedSlices]]
    _kind_name: ClassVar[str]
    _sum_kind: ClassVar[type[DenseSum] | type[SlicesSum]]

    def __init__(
        self,
        dtype: Any,
        shape: Sequence[int | None] | None,
        name: str,
        reduction_type: str,
    ) -> None:
        owner = type(self).__name__
        if reduction_type not in _REDUCTIONS:
            raise ValueError(
                f"{owner}: reduction_type must be 'MEAN' or 'SUM', got {reduction_type!r}"
            )
        self._dtype: np.dtype[Any] = dtype_of(dtype, f"{owner}: dtype")
        if self._dtype not in (np.float16, np.float32, np.float64):
            raise TypeError(f"{owner}: dtype must be a floating dtype, got {self._dtype}")
        self._declared = None if shape is None else _declared(owner, shape)
        self._name = name
        self._mean = reduction_type == "MEAN"
        self._condition = threading.Condition()
        self._count = 0
        self._step = 0
        self._closed = False
        self._sum: Any = None  # a `_sum_kind`, once there is a gradient

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of what is taken."""
        return self._dtype

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}: {self._count} gradients, step {self._step}>"

    def num_accumulated(self, name: str | None = None) -> int:
        """Return how many gradients have been put in since the last take.

        Parameters
        ----------
        name : str, optional
            Not used.
        """
        with self._condition:
            return self._count

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> None:
        """Set the step. What has been put in stays.

        Parameters
        ----------
        new_global_step : int or Variable
            Gradients for an earlier step are dropped from now on. A smaller one than before is
            obeyed, with a warning in the log.
        name : str, optional
            Not used.
        """
        step = _integer("new_global_step", new_global_step)
        with self._condition:
            if step < self._step:
                _log.warning("%s: the step goes back from %d to %d", self._name, self._step, step)
            self._step = step

    def close(self) -> None:
        """End all waiting: whoever waits for gradients, now or later, gets a `RuntimeError`."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _collected_now(self) -> Collected:
        """Return what has been put in since the last take."""
        with self._condition:
            sums = []
            if self._sum is not None:
                arrays = {part: array.copy() for part, array in self._sum.arrays().items()}
                sums.append((self, SumState(self._dtype.name, arrays)))
            return Collected(self._count, self._step, sums)

    def _set_collected(self, collected: Collected) -> None:
        """Go on from what `_collected_now` returned, in another process say."""
        with self._condition:
            self._sum = None
            for _, state in collected.sums:
                self._sum = sum_of(state)
                self._learn_shape(self._sum.total())
            self._count, self._step = collected.count, collected.step
            self._condition.notify_all()

    def _misfit(self, state: SumState) -> str:
        """Say why this cannot go on from a sum of gradients, or nothing."""
        if ("dense" in state.arrays) != (self._sum_kind is DenseSum):
            return f"is for {self._kind_name}, the file has other gradients"
        if state.dtype != self._dtype.name:
            return f"has dtype {state.dtype} in the file, {self._dtype} here"
        return ""

    def _learn_shape(self, total: Any) -> None:
        """Take over dimensions that were not declared from the first gradient."""
        raise NotImplementedError

    def _require_fit(self, gradient: Any) -> None:
        """Raise if a gradient has not the shape of this accumulator."""
        raise NotImplementedError

    def _put(self, grad: Any, local_step: Any) -> bool:
        """Put a gradient in, unless it is too old; return whether it was."""
        gradient = as_gradient(grad, name="grad")
        if not isinstance(gradient, self._kind):
            raise TypeError(f"grad must be {self._kind_name}, got {shown(grad)}")
        if isinstance(gradient, IndexedSlices):
            gradient = gradient._with_values(cast_real(gradient.values, self._dtype, "grad"))
        else:
            gradient = cast_real(gradient, self._dtype, "grad")
        step = _integer("local_step", local_step)
        with self._condition:
            if self._closed:
                raise RuntimeError(f"accumulator {self._name!r} is closed")
            self._require_fit(gradient)
            if step < self._step:
                return False
            if self._sum is None:
                self._sum = self._sum_kind()
            self._sum.add(gradient)
            self._learn_shape(gradient)
            self._count += 1
            self._condition.notify_all()
            return True

    def _take(self, num_required: Any, timeout: float | None, read: Callable[[Any, int], T]) -> T:
        """Wait for gradients, and return what `read` makes of their sum and number."""
        required = _integer("num_required", num_required)
        if required < 1:
            raise ValueError(f"num_required must be at least 1, got {required}")
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._count >= required, timeout)
            if self._closed:
                raise RuntimeError(f"accumulator {self._name!r} is closed")
            if self._count < required:
                raise TimeoutError(
                    f"accumulator {self._name!r} got {self._count} of {required} gradients "
                    f"within {timeout} s"
                )
            taken = read(self._sum.total(), self._count)
            self._sum = None
            self._count = 0
            self._step += 1
            return taken


class ConditionalAccumulator(Accumulator):
    """A sum of dense gradients that can be taken when there are enough.

    Parameters
    ----------
    dtype : dtype
        What gradients are cast to, as NumPy's in-place operators cast: float16, float32 or float64.
        float16 is summed in float32.
    shape : sequence of (int or None), optional
        The shape of the gradients; ``None`` or -1 for a dimension that is not known. Dimensions
        that are not given are those of the first gradient.
    shared_name : str, optional
        Not used: there are no sessions between which it could be shared.
    name : str, default "conditional_accumulator"
        What messages call it.
    reduction_type : {"MEAN", "SUM"}, default "MEAN"
        What is taken.

    Raises
    ------
    TypeError
        If the dtype is none of these or the shape no sequence of integers.
    ValueError
        If `reduction_type` is none of these or a dimension is negative.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> accumulator = fo.ConditionalAccumulator(np.float32)
    >>> accumulator.apply_grad([1.0, 2.0]), accumulator.apply_grad([3.0, 5.0])
    (True, True)
    >>> accumulator.take_grad(1)
    array([2. , 3.5], dtype=float32)
    >>> accumulator.apply_grad([1.0, 1.0], local_step=0)  # too late: its step is 1 now
    False
    """

    _kind = np.ndarray
    _kind_name = "a dense array"
    _sum_kind = DenseSum

    def __init__(
        self,
        dtype: Any,
        shape: Sequence[int | None] | None = None,
        shared_name: str | None = None,
        name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        super().__init__(dtype, shape, name, reduction_type)

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> bool:
        """Put a gradient in, unless it is too old.

        Parameters
        ----------
        grad : array_like
            The gradient. It is not kept.
        local_step : int or Variable, default 0
            The step for which it was computed. One less than the accumulator's step is too old.
        name : str, optional
            Not used.

        Returns
        -------
        bool
            Whether it was put in.

        Raises
        ------
        TypeError
            If it is no dense array of real numbers or its dtype is not cast.
        ValueError
            If its shape is not that of the accumulator, however old it is.
        RuntimeError
            If the accumulator is closed.
        """
        return self._put(grad, local_step)

    def take_grad(
        self, num_required: Any, name: str | None = None, *, timeout: float | None = None
    ) -> Array:
        """Wait for gradients, and take their mean or sum.

        Parameters
        ----------
        num_required : int
            How many must have been put in, at least 1. All that were are taken.
        name : str, optional
            Not used.
        timeout : float, optional
            How many seconds to wait at most. By default for ever.

        Returns
        -------
        ndarray
            The accumulator begins anew, and its step has grown by one.

        Raises
        ------
        ValueError
            If `num_required` is less than 1.
        TimeoutError
            If there were too few in time. Nothing has changed then.
        RuntimeError
            If the accumulator is closed.
        """

        def read(total: Array, count: int) -> Array:
            if self._mean:
                total /= count
            return np.asarray(total.astype(self._dtype, copy=False))

        return self._take(num_required, timeout, read)

    def _require_fit(self, gradient: Array) -> None:
        _check_shape(self._name, gradient.shape, self._declared)

    def _learn_shape(self, total: Array) -> None:
        self._declared = total.shape


class SparseConditionalAccumulator(Accumulator):
    """A sum of sparse gradients that can be taken when there are enough.

    Rows need not be sorted or unique: each gradient is merged when it is put in.

    Parameters
    ----------
    dtype : dtype
        What gradients are cast to, as NumPy's in-place operators cast: float16, float32 or float64.
        float16 is summed in float32.
    shape : sequence of (int or None), optional
        The shape of the array that the slices are rows of; ``None`` or -1 for a dimension that is
        not known.
    shared_name : str, optional
        Not used: there are no sessions between which it could be shared.
    name : str, default "sparse_conditional_accumulator"
        What messages call it.
    reduction_type : {"MEAN", "SUM"}, default "MEAN"
        What is taken. As in TensorFlow the mean of a row is over the gradients that list it, not
        over all.

    Raises
    ------
    TypeError
        If the dtype is none of these or the shape no sequence of integers.
    ValueError
        If `reduction_type` is none of these or a dimension is negative.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> accumulator = fo.SparseConditionalAccumulator(np.float64, shape=(None, 2))
    >>> accumulator.apply_grad([0, 1], [[1.0, 0.0], [0.0, 2.0]])
    True
    >>> accumulator.apply_grad([0, 2], [[0.0, 1.0], [3.0, 0.0]])
    True
    >>> indices, values, shape = accumulator.take_grad(2)
    >>> indices, shape
    (array([0, 1, 2]), array([-1,  2]))
    >>> values
    array([[0.5, 0.5],
           [0. , 2. ],
           [3. , 0. ]])
    """

    _kind = IndexedSlices
    _kind_name = "IndexedSlices"
    _sum_kind = SlicesSum

    def __init__(
        self,
        dtype: Any,
        shape: Sequence[int | None] | None = None,
        shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        super().__init__(dtype, shape, name, reduction_type)
        if self._declared == ():
            raise ValueError(f"{type(self).__name__}: shape () has no rows")

    def apply_indexed_slices_grad(
        self, grad: Any, local_step: Any = 0, name: str | None = None
    ) -> bool:
        """Put slices in, unless they are too old.

        Parameters
        ----------
        grad : IndexedSlices or scipy.sparse matrix
            The gradient. It is not kept.
        local_step : int or Variable, default 0
            The step for which it was computed. One less than the accumulator's step is too old.
        name : str, optional
            Not used.

        Returns
        -------
        bool
            Whether it was put in. A gradient without rows is, and counts.

        Raises
        ------
        TypeError
            If it is not sparse or its dtype is not cast.
        ValueError
            If its rows or its dense shape do not fit.
        IndexError
            If a row is not in the declared shape, or negative.
        RuntimeError
            If the accumulator is closed.
        """
        return self._put(grad, local_step)

    def apply_grad(
        self,
        grad_indices: Any,
        grad_values: Any,
        grad_shape: Any = None,
        local_step: Any = 0,
        name: str | None = None,
    ) -> bool:
        """Put slices in that are given by their parts, unless they are too old.

        Parameters
        ----------
        grad_indices : array_like of int, shape (n,)
            The rows.
        grad_values : array_like, shape (n, ...)
            Their values.
        grad_shape : sequence of int, optional
            The shape of the whole array; -1 for a dimension that is not known.
        local_step : int or Variable, default 0
            The step for which it was computed.
        name : str, optional
            Not used.

        Returns
        -------
        bool
            Whether it was put in.

        Raises
        ------
        TypeError, ValueError, IndexError
            If the parts do not fit each other or the accumulator.
        RuntimeError
            If the accumulator is closed.
        """
        slices = IndexedSlices(grad_values, grad_indices)
        if grad_shape is not None:
            whole = _declared("grad_shape", np.asarray(grad_shape).tolist())
            _check_shape("grad_shape", (None, *slices.values.shape[1:]), whole)
            if whole[0] is not None:
                shape = (whole[0], *slices.values.shape[1:])
                slices = IndexedSlices(slices.values, slices.indices, shape)
        return self.apply_indexed_slices_grad(slices, local_step)

    def take_indexed_slices_grad(
        self, num_required: Any, name: str | None = None, *, timeout: float | None = None
    ) -> IndexedSlices:
        """Wait for gradients, and take their mean or sum as slices.

        Parameters
        ----------
        num_required : int
            How many must have been put in, at least 1. All that were are taken.
        name : str, optional
            Not used.
        timeout : float, optional
            How many seconds to wait at most. By default for ever.

        Returns
        -------
        IndexedSlices
            Each row once, in ascending order, int64. They have a dense shape if the number of rows
            was declared.

        Raises
        ------
        ValueError
            If `num_required` is less than 1.
        TimeoutError
            If there were too few in time. Nothing has changed then.
        RuntimeError
            If the accumulator is closed.
        """

        def read(summed: tuple[IndexedSlices, Array], count: int) -> IndexedSlices:
            total, counts = summed
            values = total.values
            if self._mean:
                values = values / counts.reshape(-1, *(1,) * (values.ndim - 1)).astype(values.dtype)
            rows = None if self._declared is None else self._declared[0]
            shape = None if rows is None else (rows, *values.shape[1:])
            return IndexedSlices(values.astype(self._dtype, copy=False), total.indices, shape)

        return self._take(num_required, timeout, read)

    def _require_fit(self, gradient: IndexedSlices) -> None:
        seen: tuple[int | None, ...] = (None, *gradient.values.shape[1:])
        if gradient.dense_shape is not None:
            seen = gradient.dense_shape
        _check_shape(self._name, seen, self._declared)
        if self._declared is not None and self._declared[0] is not None:
            gradient.check_range(self._declared[0], "grad")

    def _learn_shape(self, total: Any) -> None:
        slices = total if isinstance(total, IndexedSlices) else total[0]
        rows = None if self._declared is None else self._declared[0]
        self._declared = (rows, *slices.values.shape[1:])

    def take_grad(
        self, num_required: Any, name: str | None = None, *, timeout: float | None = None
    ) -> tuple[Array, Array, Array]:
        """Wait for gradients, and take their mean or sum in parts.

        Parameters
        ----------
        num_required : int
            How many must have been put in, at least 1. All that were are taken.
        name : str, optional
            Not used.
        timeout : float, optional
            How many seconds to wait at most. By default for ever.

        Returns
        -------
        indices : ndarray of int64
            The rows in ascending order.
        values : ndarray
            Their values.
        shape : ndarray of int64
            The declared shape, -1 for the number of rows if it was not declared.

        Raises
        ------
        ValueError, TimeoutError, RuntimeError
            As `take_indexed_slices_grad`.
        """
        taken = self.take_indexed_slices_grad(num_required, timeout=timeout)
        n_rows = -1 if taken.dense_shape is None else taken.dense_shape[0]
        shape = np.array([n_rows, *taken.values.shape[1:]], np.int64)
        return taken.indices, taken.values, shape


def _integer(name: str, value: Any) -> int:
    """Read an integer from a number, a variable or an array of one."""
    number = value
    if hasattr(value, "item"):
        try:
            number = value.item()
        except (ValueError, RuntimeError):  # more numbers than one, or none at hand
            number = None
    if isinstance(number, bool) or not isinstance(number, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {shown(value)}")
    return int(number)


def _declared(owner: str, shape: Sequence[int | None]) -> tuple[int | None, ...]:
    try:
        dims = [None if n is None else _integer("a dimension", n) for n in shape]
    except TypeError as error:
        raise TypeError(
            f"{owner}: shape must be a sequence of integers or None, got {shown(shape)}"
        ) from error
    if any(n is not None and n < -1 for n in dims):
        raise ValueError(f"{owner}: shape has a negative dimension: {tuple(dims)}")
    return tuple(None if n == -1 else n for n in dims)


def _check_shape(
    name: str, shape: tuple[int | None, ...], declared: tuple[int | None, ...] | None
) -> None:
    if declared is None:
        return
    if len(shape) != len(declared) or any(
        n is not None and m is not None and n != m for n, m in zip(shape, declared, strict=True)
    ):
        raise ValueError(f"{name}: a gradient of shape {shape} does not fit shape {declared}")
