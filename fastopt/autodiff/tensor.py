"""What is differentiated: `Differentiable`, `Tensor`, and `Node`, which knows how a value was made.

The three know neither NumPy's functions nor their derivatives. NumPy hands every function called on
a `Differentiable` to `__array_ufunc__` or `__array_function__`, which look it up in `HANDLERS`; the
modules of `numpy_vjps` fill that table.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from fastopt._kernels._recorder import Cell, Form, Node, binary, wrapped
from fastopt.autodiff.array_methods import ArrayMethods
from fastopt.autodiff.recording import current

__all__ = ["Differentiable", "Form", "Node", "Tensor"]

Array = np.ndarray[Any, Any]

HANDLERS: dict[Any, Callable[..., Any]] = {}
"""NumPy function or ufunc, or (ufunc, method name) -> what is called instead."""

FINDERS: list[Callable[[np.ufunc], Callable[..., Any] | None]] = []
"""Asked for the handler of a ufunc that is not in `HANDLERS`, for libraries imported later."""


def value_of(x: Any) -> Any:
    """Return `x` with every `Differentiable`, also in lists, tuples and dicts, made its value."""
    if isinstance(x, Differentiable):
        return x._read()
    if type(x) in (list, tuple):
        return type(x)(value_of(item) for item in x)
    if type(x) is dict:
        return {key: value_of(item) for key, item in x.items()}
    return x


def read_only(value: Any) -> Any:
    """Return a view of an array that cannot be written."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value


def holds_differentiable(x: Any) -> bool:
    """Say whether `x` is a `Differentiable`, or a list, tuple or dict that holds one."""
    if isinstance(x, Differentiable):
        return True
    if type(x) in (list, tuple):
        return any(holds_differentiable(item) for item in x)
    if type(x) is dict:
        return any(holds_differentiable(item) for item in x.values())
    return False


def name_of(function: Any) -> str:
    """Return the name under which users know a function: ``numpy.linalg.svd``."""
    if isinstance(function, np.ufunc):
        ours = getattr(np, function.__name__, None) is function
        return f"numpy.{function.__name__}" if ours else function.__name__
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{module}.{name}" if module else name


def unsupported(what: str) -> TypeError:
    """Return the error for a function that autodiff does not know."""
    return TypeError(
        f"{what} has no recorded form: its derivative is not known to fastopt. Call it on plain "
        "arrays (np.asarray(x), without gradient), write it with supported functions, or teach "
        "it with fastopt.primitive and fastopt.defvjp"
    )


def _defers(other: Any) -> bool:
    return getattr(type(other), "__array_ufunc__", 0) is None


def _leaves_the_product(x: Differentiable) -> bool:
    """Say whether `__array__` was called by scipy.sparse to compute ``A @ x``.

    scipy.sparse has no protocol to ask ``x`` whether it brings an operator of its own
    (scipy/scipy#19599). It leaves the product to ``x`` only if that becomes a 0-d array of objects.
    The products of pandas leave nothing to ``x``.

    Raises
    ------
    TypeError
        If either library called for something that would lose the history of `x`.
    """
    frame = sys._getframe(1).f_back
    if frame is None:
        return False
    module, caller = str(frame.f_globals.get("__name__")), frame.f_code.co_name
    if module.startswith("pandas.") and caller == "dot":
        if x._node is not None or current().watches:
            raise TypeError(
                f"pandas would lose the history of {x.name!r}: write A.to_numpy() @ x for A @ x, "
                "or np.asarray(x) if no gradient is wanted"
            )
    elif module.startswith("scipy.sparse."):
        if caller == "_matmul_dispatch":
            return True
        if x._node is not None or "multiply" in caller:
            raise TypeError(
                f"scipy.sparse would lose the history of {x.name!r}: of its operations only A @ x "
                "is recorded; use np.asarray(x) if no gradient is wanted"
            )
    return False


def _called(x: Differentiable) -> str:
    return f"{type(x).__name__} {x.name!r}"


def _in_place(symbol: str) -> Any:
    def refuse(self: Any, other: Any) -> NoReturn:
        raise TypeError(
            f"{_called(self)}: {symbol}= is not recorded: write x = x {symbol} value for a new "
            "tensor, or change a variable with assign, assign_add or assign_sub"
        )

    return refuse


class _Itself(np.ndarray[Any, Any]):
    """The elementwise comparison of an object to itself, which counts as true.

    Weak references compare what they refer to by ``==`` and then ask for its truth.
    """

    def __bool__(self) -> bool:
        return True


class Differentiable(ArrayMethods, NDArrayOperatorsMixin):
    """What gradients can be taken with respect to: the base of `Tensor` and of ``Variable``.

    NumPy's functions and operators work on it and, where `recording` says so, are recorded.

    Comparisons are elementwise and return plain arrays, as NumPy's do; hashing is by identity.
    Objects may be keys of dicts, sets and weak dicts, since two that are alive never have the same
    hash, and an object compared to itself is true. But ``x in some_list`` compares elements and
    should be ``any(x is y for y in some_list)``.

    What NumPy does not hand to these objects sees their value alone, and no gradient comes back
    from it: methods of plain arrays (``array.dot(x)``; write ``np.dot(array, x)``), assignment into
    plain arrays (``array[0] = x``), ``np.array([x, y])`` (write ``np.stack([x, y])``), ``float(x)``
    and ``math.exp(x)``.

    A subclass that owns storage gives `_read`, `dtype`, `shape`, and where it can `_read_rows`. It
    raises its `_version` by one whenever its values change in place.

    Attributes
    ----------
    dtype : dtype
    shape : tuple of int
    name : str
    """

    __slots__ = ()
    __array_priority__ = 1000.0
    __pandas_priority__ = 5000  # more than a DataFrame's: pandas leaves operators to these objects
    __hash__ = object.__hash__

    _node: Node | None = None
    _trainable: bool = False
    _version: int = 0

    # ------------------------------------------------------------------ what a subclass gives

    def _read(self) -> Array:
        """Return the current value, which the caller does not write to."""
        raise NotImplementedError

    def _read_rows(self, ids: Array) -> Array:
        """Return fresh rows of axis 0; `ids` are 1-D and in range."""
        return np.take(self._read(), ids, axis=0)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the value."""
        return self._read().dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self._read().shape

    @property
    def name(self) -> str:
        """What messages call it."""
        return type(self).__name__

    # ------------------------------------------------------------------ what an array has

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d " + type(self).__name__)
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError(f"iteration over a 0-d {type(self).__name__}")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, x: Any) -> bool:
        return bool(np.any(self._read() == value_of(x)))

    def __getitem__(self, index: Any) -> Any:
        return HANDLERS[operator.getitem](self, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise TypeError(
            f"{_called(self)} does not support item assignment: build a new value (np.where, "
            "np.concatenate), or change a variable with assign, assign_add or scatter_update"
        )

    # ------------------------------------------------------------------ leaving the graph

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if _leaves_the_product(self):
            return np.empty((), object)
        value = np.asarray(self._read())
        if copy:
            return np.array(value, dtype=dtype, copy=True)
        if dtype is not None and value.dtype != dtype:
            if copy is False:
                raise ValueError(
                    f"cannot make an array of dtype {np.dtype(dtype)} from {self!r} without a copy"
                )
            return value.astype(dtype)
        # Not to be written: recorded operations may still need the values.
        return read_only(value)

    def item(self) -> Any:
        """Return the only element as a Python number.

        Returns
        -------
        int or float or complex or bool
            The element. It carries no gradient.

        Raises
        ------
        ValueError
            If there is not exactly one element.
        """
        return np.asarray(self._read()).item()

    def tolist(self) -> Any:
        """Return the value as nested lists of Python numbers."""
        return np.asarray(self._read()).tolist()

    def __bool__(self) -> bool:
        return bool(self._read())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        return operator.index(self._read())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    # ------------------------------------------------------------------ NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        handler = HANDLERS.get(ufunc if method == "__call__" else (ufunc, method))
        if handler is None and method == "__call__":
            handler = next(filter(None, (find(ufunc) for find in FINDERS)), None)
        if handler is not None:
            return handler(*inputs, **kwargs)
        if not current().records and not holds_differentiable(kwargs.get("out")):
            return getattr(ufunc, method)(*value_of(inputs), **value_of(kwargs))
        name = name_of(ufunc)
        raise unsupported(name if method == "__call__" else f"{name}.{method}")

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        handler = HANDLERS.get(function)
        if handler is not None:
            return handler(*args, **kwargs)
        if not current().records and not holds_differentiable(kwargs.get("out")):
            return function(*value_of(args), **value_of(kwargs))
        raise unsupported(name_of(function))

    def __eq__(self, other: Any) -> Any:
        if other is self:
            value = np.asarray(self._read())
            return np.asarray(value == value).view(_Itself)
        return NotImplemented if _defers(other) else HANDLERS[np.equal](self, other)

    def astype(self, dtype: Any) -> Any:
        """Return the value in another dtype; integers and booleans carry no gradient.

        Parameters
        ----------
        dtype : dtype
            The dtype of the result.

        Returns
        -------
        Tensor or ndarray
            A tensor if the dtype is real or complex and operations are recorded.
        """
        return HANDLERS["astype"](self, dtype)

    __add__, __radd__ = binary(np.add, HANDLERS, "add")
    __sub__, __rsub__ = binary(np.subtract, HANDLERS, "sub")
    __mul__, __rmul__ = binary(np.multiply, HANDLERS, "mul")
    __truediv__, __rtruediv__ = binary(np.true_divide, HANDLERS, "truediv")
    __matmul__, __rmatmul__ = binary(np.matmul, HANDLERS, "matmul")

    def __neg__(self) -> Any:
        return HANDLERS[np.negative](self)

    def __pos__(self) -> Any:
        return HANDLERS[np.positive](self)

    def __pow__(self, other: Any, modulo: None = None) -> Any:
        if modulo is not None or _defers(other):
            return NotImplemented
        # As ndarray has it: x ** 2 is a square, which is faster and exact.
        if type(other) in (int, float) and other == 2:
            return HANDLERS[np.square](self)
        return HANDLERS[np.power](self, other)

    __iadd__ = _in_place("+")
    __isub__ = _in_place("-")
    __imul__ = _in_place("*")
    __itruediv__ = _in_place("/")
    __ifloordiv__ = _in_place("//")
    __imod__ = _in_place("%")
    __ipow__ = _in_place("**")
    __imatmul__ = _in_place("@")
    __ilshift__ = _in_place("<<")
    __irshift__ = _in_place(">>")
    __iand__ = _in_place("&")
    __ixor__ = _in_place("^")
    __ior__ = _in_place("|")


class Tensor(Cell, Differentiable):
    """A value, and the operation and inputs that made it.

    Users rarely make one: operations on variables return them. One that is made from a value is a
    constant with respect to which gradients can be taken.

    A tensor does not change. ``t += x`` makes a new one and gives it the name `t`.

    Parameters
    ----------
    value : array_like
        Copied.
    dtype : dtype, optional
        That of the copy.
    name : str, optional
        What messages call it.

    Raises
    ------
    TypeError
        If `value` is no array of numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from fastopt.autodiff import Tensor, gradients
    >>> x = Tensor([1.0, 2.0])
    >>> y = np.sum(x * x)
    >>> float(y)
    5.0
    >>> gradients(y, x)
    [array([2., 4.])]
    """

    __slots__ = ("__weakref__",)

    def __init__(self, value: Any, dtype: Any = None, name: str | None = None) -> None:
        array = np.array(value, dtype=dtype)
        if array.dtype.kind in "OSUMm":
            raise TypeError(f"value must be an array of numbers, got dtype {array.dtype}")
        self._value = array
        self._node = None
        self._name = name

    _of = staticmethod(wrapped)

    def _read(self) -> Array:
        return self._value

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the value."""
        return self._value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self._value.shape

    @property
    def name(self) -> str:
        """The name that was given, or that of the operation."""
        if self._name is not None:
            return self._name
        return "Tensor" if self._node is None else str(self._node.operation.name)

    @property
    def value(self) -> Array:
        """The value as a read-only array."""
        return self.__array__()

    def numpy(self) -> Array:
        """Return a copy of the value."""
        return np.array(self._value)

    def __repr__(self) -> str:
        value = np.asarray(self._value)
        with np.printoptions(threshold=20, edgeitems=2, precision=6):
            text = np.array2string(value, separator=", ", prefix="Tensor(")
        name = "" if self._name is None and self._node is None else f", name={self.name!r}"
        return f"Tensor({text}, shape={value.shape}, dtype={value.dtype}{name})"

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tensor cannot be pickled: its history cannot; pickle np.asarray(tensor)")

    # A tensor never changes, so `t += x` may mean `t = t + x`, as for Python's own numbers.
    __iadd__ = Differentiable.__add__
    __isub__ = Differentiable.__sub__
    __imul__ = Differentiable.__mul__
    __itruediv__ = Differentiable.__truediv__
    __imatmul__ = Differentiable.__matmul__
    __ipow__ = Differentiable.__pow__
