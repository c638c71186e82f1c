# cython: language_level=3
"""The path of a recorded call: from its arguments to a tensor that knows how it was made.

This is what every operation of a loss costs besides its arithmetic. It knows what an argument looks
like that can be differentiated (`_node`, `_read`, `_trainable`, `_version`) and nothing of
variables, NumPy's functions or their derivatives; `fastopt.autodiff` makes its classes from these.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM

from contextvars import ContextVar

import numpy as np

cimport numpy as cnp

cnp.import_array()

cdef extern from "Python.h":
    object PyObject_Call(object function, object args, PyObject* kwargs)
    int PyContextVar_Get(object variable, PyObject* otherwise, PyObject** value) except -1
    void Py_XDECREF(PyObject* x)

cdef long long last_id = 0
cdef dict NO_KWARGS = {}
cdef object MISSING = object()
cdef object generic = np.generic
cdef frozenset PLAIN = frozenset((np.ndarray, float, int, bool, type(None), str))

# Given by `install`.
cdef type tensor_type = None
cdef type differentiable_type = None
cdef object close = None

# The mode or recording of a context; None stands for the default of the process.
cdef object context_mode = ContextVar("fastopt_mode", default=None)
cdef Mode default_mode = None


cdef class Mode:
    """What is recorded, and what is noted of it.

    Attributes
    ----------
    eager : bool
        What `executing_eagerly` says.
    records : bool
        Operations on differentiable objects make tensors.
    versions : bool
        The graph remembers at which version it read a variable.
    watches : bool
        Reading a trainable object calls `watch`.
    """

    cdef public bint eager, records, versions, watches

    def __init__(self, *, bint eager, bint records, bint versions, bint watches):
        self.eager = eager
        self.records = records
        self.versions = versions
        self.watches = watches


cdef Mode current_mode():
    cdef PyObject* found = NULL
    PyContextVar_Get(context_mode, NULL, &found)
    mode = <object>found
    Py_XDECREF(found)
    return default_mode if mode is None else <Mode?>mode


def current():
    """Return the mode of this context, or the recording that is open in it."""
    return current_mode()


def enter(Mode mode not None):
    """Put this context into a mode; return what `leave` takes to put it back."""
    return context_mode.set(mode)


def leave(token):
    """Put this context into the mode it was in before."""
    context_mode.reset(token)


def set_default(Mode mode not None):
    """Set the mode of all contexts that have none of their own."""
    global default_mode
    default_mode = mode


def install(type tensor, type differentiable, plain_result):
    """Give the classes of the objects that are recorded, once, when they have been made.

    Parameters
    ----------
    tensor : type
        A subclass of `Cell`: what calls return.
    differentiable : type
        Of which every argument is an instance that gradients may flow to.
    plain_result : callable
        ``plain_result(ans, args, values)`` returns the result of a call that is not recorded.
    """
    global tensor_type, differentiable_type, close
    if not issubclass(tensor, Cell):
        raise TypeError(f"{tensor!r} is no Cell")
    tensor_type = tensor
    differentiable_type = differentiable
    close = plain_result


cdef bint inexact(object dtype):
    cdef char kind = (<cnp.dtype>dtype).kind
    if kind == c"f" or kind == c"c":
        return True
    return kind == c"V" and dtype.names is None and "float" in dtype.name


def is_inexact(dtype):
    """Say whether gradients flow through numbers of this dtype: real, complex, 16-bit."""
    if not isinstance(dtype, np.dtype):
        raise TypeError(f"dtype must be a numpy.dtype, got {type(dtype).__name__}")
    return inexact(dtype)


cdef class Form:
    """Shape and dtype of an array whose values a derivative does not need."""

    cdef readonly object shape
    cdef readonly object dtype

    def __init__(self, shape, dtype):
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self):
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self):
        """Number of elements."""
        size = 1
        for n in self.shape:
            size *= n
        return size


# The trashcan: a graph may be so deep that freeing it node within node would end the stack.
@cython.trashcan(True)
cdef class Node(Form):
    """One recorded operation.

    A node refers to its inputs, never to its output, so a graph has no cycles and is freed as soon
    as nobody holds a tensor of it.

    Attributes
    ----------
    id : int
        Larger than the id of every node that it was computed from.
    operation : Primitive
        What was called.
    argnums : tuple of int
        Positions of the arguments that gradients flow to.
    parents : tuple of (Node or Differentiable)
        For each of these positions, the node that made the argument or, if none did, the argument.
    args, kwargs
        The arguments of the call, as values. Where the derivative reads only shape and dtype of an
        argument, the parent stands in its place.
    ans
        The result, or None if the derivative does not read it.
    shape, dtype
        Those of the result.
    reads : tuple of (Differentiable, int)
        The variables whose values were read outside a `Recording`, and their versions then.
    """

    cdef readonly long long id
    cdef readonly object operation
    cdef readonly tuple argnums
    cdef readonly tuple parents
    cdef readonly object args
    cdef readonly dict kwargs
    cdef readonly object ans
    cdef readonly tuple reads

    def __init__(
        self, operation, tuple argnums, tuple parents, args, dict kwargs, ans, shape, dtype,
        tuple reads,
    ):
        global last_id
        last_id += 1
        self.id = last_id
        self.operation = operation
        self.argnums = argnums
        self.parents = parents
        self.args = args
        self.kwargs = kwargs
        self.ans = ans
        self.shape = shape
        self.dtype = dtype
        self.reads = reads


cdef class Cell:
    """What a tensor holds: a value, the node that made it or None, a name or None."""

    cdef public object _value
    cdef public object _node
    cdef public object _name


def wrapped(value, node):
    """Return a tensor of a value and the node that made it; nothing is copied."""
    return wrap(value, node)


cdef object wrap(object value, object node):
    cdef Cell cell = <Cell>tensor_type.__new__(tensor_type)
    cell._value = value
    cell._node = node
    return cell


def binary(ufunc, dict handlers, str symbol):
    """Return the methods of an operator, plain and reflected.

    Parameters
    ----------
    ufunc : ufunc
        What the operator calls.
    handlers : dict
        The recorded function of each ufunc.
    symbol : str
        ``add`` for ``__add__`` and ``__radd__``.
    """

    def forward(self, other):
        return NotImplemented if defers(other) else handlers[ufunc](self, other)

    def reflected(self, other):
        return NotImplemented if defers(other) else handlers[ufunc](other, self)

    forward.__name__, reflected.__name__ = f"__{symbol}__", f"__r{symbol}__"
    return forward, reflected


cdef bint defers(object other):
    cdef type kind = type(other)
    if kind is tensor_type or kind in PLAIN:
        return False
    return getattr(kind, "__array_ufunc__", 0) is None


cdef class Recorder:
    """A function whose calls are recorded: the part of `Primitive` that every call runs through.

    A subclass gives `_settle`, `_sequence`, `_foreign`, `_as_array` and `_keep`, for what is rare.
    """

    cdef public object function
    cdef public object name
    cdef public bint elementwise
    cdef public frozenset blocked
    cdef public dict _kept
    cdef public dict vjps
    cdef public object joint

    def __call__(self, *args, **kwargs):
        """Call the function on the values of the arguments, and record the call."""
        cdef Mode mode = current_mode()
        if kwargs:
            args, kwargs = self._settle(args, kwargs, mode.records)
        cdef Py_ssize_t i, n = len(args)
        cdef list values = list(args), argnums = [], parents = []
        cdef tuple reads = ()
        cdef bint any_blocked = len(self.blocked) != 0
        cdef type kind
        for i in range(n):
            x = <object>PyTuple_GET_ITEM(args, i)
            kind = type(x)
            if kind is tensor_type and (<Cell>x)._node is not None:
                values[i] = (<Cell>x)._value
                if not any_blocked or i not in self.blocked:
                    argnums.append(i)
                    parents.append((<Cell>x)._node)
            elif kind in PLAIN:
                continue
            elif isinstance(x, differentiable_type):
                value = x._read()
                values[i] = value
                if mode.watches:
                    if x._trainable:
                        mode.watch(x)
                elif mode.versions:
                    reads += ((x, x._version),)
                if (not any_blocked or i not in self.blocked) and inexact(value.dtype):
                    argnums.append(i)
                    parents.append(x)
            elif kind is list or kind is tuple:
                values[i] = self._sequence(i, x)
            elif not isinstance(x, (cnp.ndarray, generic)) and hasattr(kind, "__array__"):
                values[i] = self._foreign(x)
        ans = PyObject_Call(self.function, tuple(values), <PyObject*>kwargs if kwargs else NULL)
        if not mode.records or not argnums:
            return close(ans, args, values)
        return self._record(values, kwargs, ans, tuple(argnums), tuple(parents), reads)

    def record(self, args, dict kwargs, ans):
        """Record a call whose result the caller has computed.

        For functions that do not want the whole value of a variable, such as look-ups.

        Parameters
        ----------
        args : sequence
            The arguments. One that can be differentiated stays as it is and is seen by the
            derivative as an object with shape and dtype.
        kwargs : dict
            Further arguments of the derivative, all plain.
        ans : ndarray
            The result.

        Returns
        -------
        Tensor or ndarray
            `ans` itself where nothing is recorded.
        """
        cdef Mode mode = current_mode()
        cdef list values = list(args), argnums = [], parents = []
        cdef tuple reads = ()
        cdef Py_ssize_t i
        for i in range(len(values)):
            x = values[i]
            if not isinstance(x, differentiable_type):
                continue
            parent = x._node
            if parent is None:
                parent = x
                if mode.watches:
                    if x._trainable:
                        mode.watch(x)
                elif mode.versions:
                    reads += ((x, x._version),)
            values[i] = parent
            if i not in self.blocked and inexact(x.dtype):
                argnums.append(i)
                parents.append(parent)
        if not mode.records or not argnums:
            return ans
        return self._record(values, kwargs, ans, tuple(argnums), tuple(parents), reads)

    cpdef object _record(
        self, list values, dict kwargs, object ans, tuple argnums, tuple parents, tuple reads
    ):
        cdef Py_ssize_t i, k
        if type(ans) is not cnp.ndarray and not isinstance(ans, generic):
            ans = self._as_array(ans)
        dtype = ans.dtype
        if not inexact(dtype):
            if dtype.hasobject:
                raise TypeError(f"{self.name} returned an array of objects, not of numbers")
            return ans
        kept = self._kept.get(argnums, MISSING)
        if kept is MISSING:
            kept = self._keep(argnums)
        saved = values
        if kept is not None:
            if len(argnums) < len(values):
                for i in range(len(values)):
                    value = values[i]
                    if type(value) is cnp.ndarray and i not in kept and i not in argnums:
                        if self.elementwise:
                            values[i] = None
                        else:
                            values[i] = Form(value.shape, value.dtype)
            elif not kept:
                saved = parents
            if saved is values:
                for k in range(len(argnums)):
                    if argnums[k] not in kept:
                        i = argnums[k]
                        values[i] = parents[k]
        return wrap(
            ans,
            Node(
                self, argnums, parents, saved, NO_KWARGS if self.elementwise else kwargs,
                ans if kept is None or -1 in kept else None, ans.shape, dtype, reads,
            ),
        )

    def pull(self, Node node, argnums, g):
        """Return the gradients of the arguments at `argnums`, `g` being that of the result."""
        if self.joint is not None:
            return self.joint(argnums, node.ans, node.args, node.kwargs)(g)
        cdef tuple args = (node.ans, *node.args)
        cdef PyObject* kwargs = <PyObject*>node.kwargs if node.kwargs else NULL
        cdef list found = []
        for i in argnums:
            found.append(PyObject_Call(self.vjps[i], args, kwargs)(g))
        return found


def undo(tuple step, dict pending, total, pull, fit, collect, apart):
    """Undo an operation: give what is pending for its result to its arguments.

    Parameters
    ----------
    step : tuple of (Node, sequence of int, sequence)
        As `steps` returns them.
    pending : dict
        By address of a node or of what no node made: the only term of its gradient so far and
        whether nobody else sees its memory, or several terms.
    total : callable
        ``total(terms, node)`` returns the sum of terms.
    pull : callable
        ``pull(operation, node, argnums, g)`` returns the gradients of complex arguments.
    fit : callable
        ``fit(term, parent, operation, argnum)`` gives a term the shape and dtype of the argument.
    collect : callable
        ``collect(pending, parent, term, owned)`` adds a term to those that are pending.
    apart : callable or None
        Copies a term if it lies in memory that may change before the term is used.
    """
    cdef Node node = step[0]
    argnums, parents = step[1], step[2]
    terms = pending.pop(address(node), None)
    if terms is None:
        return
    if type(terms) is tuple and type((<tuple>terms)[0]) is cnp.ndarray:
        g = (<tuple>terms)[0]
    else:
        g = total(terms, node)
    terms = None
    operation = node.operation
    if (<cnp.dtype>node.dtype).kind == c"c":
        found = pull(operation, node, argnums, g)
    else:
        found = operation.pull(node, argnums, g)
    if type(found) is not list and type(found) is not tuple:
        found = list(found)
    if len(found) != len(argnums):
        raise ValueError(
            f"{operation.name}: {len(found)} gradients for {len(argnums)} arguments"
        )
    cdef bint builtin = operation.builtin, owned
    cdef Py_ssize_t k
    for k in range(len(argnums)):
        term, parent = found[k], parents[k]
        if term is None:
            continue
        if not is_like(term, parent):
            fitted = fit(term, parent, operation, argnums[k])
        else:
            fitted = term
        if apart is not None and not builtin:
            fitted = apart(fitted)
        owned = (
            (fitted is not term or (builtin and term is not g))
            and type(fitted) is cnp.ndarray
            and fitted.base is None
        )
        key = address(parent)
        if key in pending:
            collect(pending, parent, fitted, owned)
        else:
            pending[key] = (fitted, owned)


cdef bint is_like(object term, object parent):
    """Say whether a term is a real array of the shape and dtype of what it belongs to."""
    if type(term) is not cnp.ndarray or type(parent) is not Node:
        return False
    dtype = (<Node>parent).dtype
    return (
        <object>cnp.PyArray_DESCR(<cnp.ndarray>term) is dtype
        and (<cnp.dtype>dtype).kind != c"c"
        and term.shape == (<Node>parent).shape
    )


def reachable(y_keys, set stopped):
    """Return all nodes that lead to the ys, earliest first; what they read must be unchanged.

    Parameters
    ----------
    y_keys : sequence
        Nodes, and objects that no node made.
    stopped : set of int
        Ids of the nodes whose inputs are not wanted.

    Raises
    ------
    RuntimeError
        If a variable was changed after it had been read.
    """
    cdef Node node
    cdef set seen = set()
    cdef list stack = [key for key in y_keys if type(key) is Node], found = []
    while stack:
        node = stack.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        found.append((node.id, node))
        for leaf, version in node.reads:
            if leaf._version != version:
                raise RuntimeError(
                    f"{leaf.name!r} was changed after {node.operation.name} had read it, so that "
                    "gradients would mix old and new values: record the loss again, or give it "
                    "as a callable"
                )
        if not stopped or address(node) not in stopped:
            for parent in node.parents:
                if type(parent) is Node and (<Node>parent).id not in seen:
                    stack.append(parent)
    found.sort()
    return [node for _, node in found]


cdef object address(object x):
    return <size_t><void*>x  # what id() returns


def steps(list nodes, set wanted, set stopped):
    """Return what is to be undone to get from the ys to the xs, latest first.

    Parameters
    ----------
    nodes : list of Node
        As `reachable` returns them.
    wanted, stopped : set of int
        Ids of what the xs are collected under, and of the nodes whose inputs are not wanted.

    Returns
    -------
    list of (Node, sequence of int, sequence)
        A node, the positions of the arguments that gradients go to, and what made these arguments.

    Raises
    ------
    LookupError
        If there is no derivative for one of these arguments.
    """
    cdef Node node
    cdef Py_ssize_t k, n, leading
    cdef set leads = set(wanted)
    cdef list found = []
    for node in nodes:
        if stopped and address(node) in stopped:
            continue
        argnums, parents = node.argnums, node.parents
        n = len(node.parents)
        leading = 0
        for k in range(n):
            leading += address(node.parents[k]) in leads
        if leading == 0:
            continue
        if leading < n:
            there = [k for k in range(n) if address(node.parents[k]) in leads]
            argnums = [node.argnums[k] for k in there]
            parents = [node.parents[k] for k in there]
        leads.add(address(node))
        missing = node.operation.lacks(argnums)
        if missing is not None:
            raise LookupError(
                f"no gradient is defined for argument {missing} of {node.operation.name}, "
                "which lies between ys and xs; define it with defvjp, or hold it constant "
                "with stop_gradient"
            )
        found.append((node, argnums, parents))
    found.reverse()
    return found
