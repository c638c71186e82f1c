"""`Variable`: numbers that training changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fastopt import _storage
from fastopt._arrays import cast_real, compute_dtype, dtype_of, shown
from fastopt._kernels._counters import Versioned
from fastopt._kernels._deferred import Ledger
from fastopt._kernels._rows import gather, scatter_add
from fastopt._kernels._step_memory import empty
from fastopt.autodiff.tensor import Differentiable
from fastopt.conversion import as_gradient
from fastopt.graph import Graph, GraphKeys, get_default_graph
from fastopt.indexed_slices import IndexedSlices

Array = np.ndarray[Any, Any]
Constraint = Callable[[Any], Any]


class Variable(Versioned, Differentiable):
    """An array of numbers that an optimizer updates in place.

    It stands for its value in NumPy's functions and operators, which record how a loss depends on
    it. A variable joins the collections of the default graph, which hold it weakly: when the
    program drops it, it is gone.

    Parameters
    ----------
    initial_value : array_like or callable
        The value to begin with, or a function without arguments that returns it. An array keeps its
        dtype; Python floats and lists of floats become float32 as in TensorFlow, integers int64.
    trainable : bool, default True
        Whether it joins `GraphKeys.TRAINABLE_VARIABLES` and the default `var_list` of a callable
        loss that reads it.
    name : str, optional
        Made unique in the graph: ``w``, ``w_1``, ... By default ``Variable``.
    dtype : dtype, optional
        The dtype, to which floats are cast and integers converted exactly.
    copy : bool, default True
        Own a copy of the value. With False the variable shares the memory that it is given and
        trains it in place: an ndarray, a `numpy.memmap`, the memory of a PyTorch CPU tensor.
        Its own begins at a cache line, which memory of NumPy does not: rows of a table that
        straddle two lines take longer to read and to update.
    constraint : callable, optional
        Called with the variable after each dense update; what it returns becomes the value. After
        a sparse update it is called with the updated rows, if it has an attribute ``rows`` that is
        True; else sparse gradients are refused. See `fastopt.constraints`.

    Attributes
    ----------
    graph : Graph
        The graph whose collections and names it belongs to.

    Raises
    ------
    TypeError
        If the value is no array of real numbers or booleans, is sparse (variables are dense;
        gradients may be sparse), is not cast to `dtype`, or `name`, `trainable`, `dtype`, `copy`,
        `constraint` are not what they should be.
    ValueError
        If ``copy=False`` and the memory cannot be shared: it is read-only, not C-contiguous, not
        aligned, of swapped byte order or of another dtype, or there is no memory (lists, numbers).

    Notes
    -----
    A pickled or copied variable has the value, the constraint, and the name if that is free in the
    default graph when it is made, else the next free one. Its memory is its own.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> w = fo.Variable(np.array([1.0, 2.0]), name="weights")
    >>> w.assign_add([0.5, 0.5]).numpy()
    array([1.5, 2.5])
    >>> memory = np.zeros(3, np.float32)
    >>> shared = fo.Variable(memory, copy=False)
    >>> shared.assign([1, 2, 3]) is shared
    True
    >>> memory
    array([1., 2., 3.], dtype=float32)
    """

    _held_weakly = True  # by collections

    _storage: Array
    _lock: threading.RLock

    def __init__(
        self,
        initial_value: Any,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        *,
        copy: bool = True,
        constraint: Constraint | None = None,
    ) -> None:
        if not isinstance(trainable, (bool, np.bool_)):
            raise TypeError(f"trainable must be True or False, got {shown(trainable)}")
        if not isinstance(copy, (bool, np.bool_)):
            raise TypeError(f"copy must be True or False, got {shown(copy)}")
        if constraint is not None and not callable(constraint):
            raise TypeError(f"constraint must be callable or None, got {shown(constraint)}")
        what = "initial_value" if name is None else f"initial_value of variable {name!r}"
        if callable(initial_value) and not hasattr(initial_value, "__array__"):
            initial_value = initial_value()
        target = (
            None if dtype is None else _storage.checked_dtype(dtype_of(dtype, "dtype"), "dtype")
        )
        storage = (_storage.owned if copy else _storage.shared)(initial_value, target, what)
        graph = get_default_graph()
        self._storage = storage
        self._lock = threading.RLock()
        self._ledger: Ledger | None = None  # of what rows have missed; see deferred_rows.py
        self._shares_memory = not copy
        self._version = 0
        self._trainable = bool(trainable)
        self._constraint = constraint
        self.graph: Graph = graph
        self._name = graph.unique_name("Variable" if name is None else name)
        graph.add_to_collection(GraphKeys.GLOBAL_VARIABLES, self)
        if trainable:
            graph.add_to_collection(GraphKeys.TRAINABLE_VARIABLES, self)

    # ------------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        """The name, unique in the graph."""
        return self._name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, which never changes."""
        dtype: np.dtype[Any] = self._storage.dtype
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which never changes."""
        shape: tuple[int, ...] = self._storage.shape
        return shape

    @property
    def trainable(self) -> bool:
        """Whether training changes it by default."""
        return self._trainable

    @property
    def constraint(self) -> Constraint | None:
        """What is applied after each update, or None."""
        return self._constraint

    def __repr__(self) -> str:
        with np.printoptions(threshold=20, edgeitems=2, precision=6):
            text = np.array2string(self._read(), separator=", ", prefix="Variable(")
        trainable = "" if self._trainable else ", trainable=False"
        kind = f"shape={self.shape}, dtype={self.dtype}{trainable}"
        return f"Variable({text}, name={self._name!r}, {kind})"

    # ------------------------------------------------------------------ reading

    def _read(self) -> Array:
        if self._ledger is not None:
            self._ledger.settle()
        return self._storage

    def _read_rows(self, ids: Array) -> Array:
        storage = self._storage
        rows = empty((ids.shape[0], *storage.shape[1:]), storage.dtype)
        ledger = self._ledger
        if ledger is not None and ledger.pending:
            if ledger.w is storage:
                ledger.gather(ids, rows)
                return rows
            ledger.settle_rows(ids)  # a slot, or 16 bits of a master
        gather(storage, ids, rows)
        return rows

    def _read_at(self, ids: Array) -> Array:
        """Return the current value, of which only rows in `ids` may be looked at."""
        ledger = self._ledger
        if ledger is None or not ledger.pending:
            return self._read()
        ledger.settle_rows(ids)
        return self._storage

    def _at_hand(self) -> Array | None:
        """Return the storage if it is the current value in all rows, else None."""
        ledger = self._ledger
        return self._storage if ledger is None or not ledger.pending else None

    @property
    def value(self) -> Array:
        """The value as a read-only view, which follows the variable.

        Rows of a table for which a sparse optimizer has work left, see `AdamOptimizer`, follow when
        the variable is next read.
        """
        view = self._read().view()
        view.flags.writeable = False
        return view

    def numpy(self) -> Array:
        """Return a copy of the value as it is now.

        Returns
        -------
        ndarray
        """
        with self._lock:
            return self._read().copy()

    def read_value(self) -> Any:
        """Return the value as it is now, recorded like any operation.

        Returns
        -------
        Tensor or ndarray
            A tensor through which gradients flow to the variable; a plain array in eager mode.
        """
        return np.copy(self)

    # ------------------------------------------------------------------ changing

    def assign(self, value: Any) -> Variable:
        """Replace the value.

        Parameters
        ----------
        value : array_like
            Of exactly this shape, as in TensorFlow: nothing is broadcast. Floats are cast as
            NumPy's in-place operators cast, integers converted exactly.

        Returns
        -------
        Variable
            The variable itself.

        Raises
        ------
        TypeError
            If the value is sparse, no array of numbers, or not cast to the variable's dtype.
        ValueError
            If the shapes differ.
        """
        new = self._operand(value)
        with self._lock:
            self._read()  # what rows have missed concerns slots too
            np.copyto(self._storage, new)
            self._version += 1
        return self

    def assign_add(self, delta: Any) -> Variable:
        """Add `delta` to the value.

        Parameters
        ----------
        delta : array_like
            As for `assign`.

        Returns
        -------
        Variable
            The variable itself.

        Raises
        ------
        TypeError
            As `assign`; also if the variable holds booleans.
        ValueError
            If the shapes differ.
        """
        return self._accumulate(np.add, delta)

    def assign_sub(self, delta: Any) -> Variable:
        """Subtract `delta` from the value.

        Parameters
        ----------
        delta : array_like
            As for `assign`.

        Returns
        -------
        Variable
            The variable itself.

        Raises
        ------
        TypeError
            As `assign`; also if the variable holds booleans.
        ValueError
            If the shapes differ.
        """
        return self._accumulate(np.subtract, delta)

    def scatter_update(self, sparse_delta: IndexedSlices) -> Variable:
        """Replace rows of the value.

        Parameters
        ----------
        sparse_delta : IndexedSlices
            The rows, cast as `assign` casts. Of a row that is listed repeatedly the last one stays.

        Returns
        -------
        Variable
            The variable itself.

        Raises
        ------
        TypeError
            If it is not an `IndexedSlices`, or not cast to the variable's dtype.
        ValueError
            If its rows are not rows of this variable.
        IndexError
            If there is no such row. Nothing has changed then.
        """
        delta = self._rows_operand(sparse_delta, "scatter_update", self.dtype)
        with self._lock:
            self._read_at(delta.indices)[delta.indices] = delta.values
            self._version += 1
        return self

    def scatter_add(self, sparse_delta: IndexedSlices) -> Variable:
        """Add to rows of the value, repeated rows one after the other.

        Parameters
        ----------
        sparse_delta : IndexedSlices
            As for `scatter_update`. What is added to rows of 16-bit numbers is summed in float32.

        Returns
        -------
        Variable
            The variable itself.

        Raises
        ------
        TypeError
            As `scatter_update`; also if the variable holds booleans.
        ValueError
            If its rows are not rows of this variable.
        IndexError
            If there is no such row. Nothing has changed then.

        Examples
        --------
        >>> import fastopt as fo
        >>> import numpy as np
        >>> w = fo.Variable(np.zeros((3, 2)))
        >>> w.scatter_add(fo.IndexedSlices([[1.0, 2.0], [3.0, 4.0]], [2, 2])).numpy()
        array([[0., 0.],
               [0., 0.],
               [4., 6.]])
        """
        return self._scatter(np.add, sparse_delta)

    def scatter_sub(self, sparse_delta: IndexedSlices) -> Variable:
        """Subtract from rows of the value, repeated rows one after the other.

        Parameters
        ----------
        sparse_delta : IndexedSlices
            As for `scatter_add`.

        Returns
        -------
        Variable
            The variable itself.

        Raises
        ------
        TypeError, ValueError, IndexError
            As `scatter_add`.
        """
        return self._scatter(np.subtract, sparse_delta)

    def _accumulate(self, ufunc: np.ufunc, delta: Any) -> Variable:
        if self.dtype.kind == "b":
            raise TypeError(f"variable {self._name!r} holds booleans, which are not added")
        operand = self._operand(delta)
        with self._lock:
            ufunc(self._read(), operand, out=self._storage)
            self._version += 1
        return self

    def _scatter(self, ufunc: np.ufunc, sparse_delta: Any) -> Variable:
        if self.dtype.kind == "b":
            raise TypeError(f"variable {self._name!r} holds booleans, which are not added")
        dtype = compute_dtype(self.dtype)
        delta = self._rows_operand(sparse_delta, f"scatter_{ufunc.__name__[:3]}", dtype)
        with self._lock:
            storage = self._read_at(delta.indices)
            if dtype != self.dtype:
                rows = delta.grouping(self.shape[0]).unique_sorted()
                sums = storage[rows].astype(dtype)
                ufunc.at(sums, np.searchsorted(rows, delta.indices), delta.values)
                storage[rows] = sums.astype(self.dtype)
            elif self.dtype.kind in "iu":
                ufunc.at(storage, delta.indices, delta.values)
            else:
                values = np.negative(delta.values) if ufunc is np.subtract else delta.values
                if np.may_share_memory(values, storage):
                    values = values.copy()
                scatter_add(storage, delta.indices, values)
            self._version += 1
        return self

    def _rows_operand(self, value: Any, method: str, dtype: np.dtype[Any]) -> IndexedSlices:
        """Return slices in this dtype whose rows are rows of the variable."""
        what = f"the sparse_delta of {method} on variable {self._name!r}"
        if not isinstance(value, IndexedSlices):
            raise TypeError(f"{what} must be an IndexedSlices, got {shown(value)}")
        slices = as_gradient(value, like=dtype, shape=self.shape, name=what)
        assert isinstance(slices, IndexedSlices)
        return slices

    def _operand(self, value: Any) -> Array:
        """Return what is assigned in this dtype and shape; it may share the variable's memory."""
        what = f"the value assigned to variable {self._name!r}"
        array = _storage.dense_array(value, what, self.dtype)
        if array.shape != self.shape:
            raise ValueError(f"{what} has shape {array.shape}, the variable has shape {self.shape}")
        return cast_real(array, self.dtype, what)

    # ------------------------------------------------------------------ copies

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        with self._lock:
            other = type(self)(
                self._read(), self._trainable, self._name, constraint=self._constraint
            )
        memo[id(self)] = other
        return other

    def __copy__(self) -> Variable:
        return self.__deepcopy__({})

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.numpy(), self._trainable, self._name, self._constraint)


def _restored(
    cls: type[Variable], value: Array, trainable: bool, name: str, constraint: Constraint | None
) -> Variable:
    # The array was made for the variable by unpickling, unless it was passed out of band as a view
    # of somebody's buffer.
    own = value.flags.owndata and value.flags.writeable and value.flags.c_contiguous
    var = cls(value, trainable, name, copy=not own, constraint=constraint)
    var._shares_memory = False
    return var
