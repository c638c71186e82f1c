"""`Graph`: the names and collections of variables.

TensorFlow's graph also holds operations. Here a `Tensor` carries its own history, so what is left
of the graph is what a program asks of it: unique names, and which variables there are.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastopt.variable import Variable


class GraphKeys:
    """Names of the standard collections, the same as TensorFlow's.

    Attributes
    ----------
    GLOBAL_VARIABLES : str
        Every variable.
    TRAINABLE_VARIABLES : str
        Those that training changes; the default `var_list` of a loss that is not a callable.
    MOVING_AVERAGE_VARIABLES : str
        Those that have a moving average.
    TRAIN_OP : str
        What `apply_gradients` and `minimize` returned, the latest of each name.
    GLOBAL_STEP : str
        The step counter, at most one.

    Examples
    --------
    >>> import fastopt as fo
    >>> b = fo.Variable([0.0], name="b")
    >>> fo.get_collection(fo.GraphKeys.TRAINABLE_VARIABLES)[-1] is b
    True
    """

    GLOBAL_VARIABLES = "variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    TRAIN_OP = "train_op"
    GLOBAL_STEP = "global_step"


# Collections that keep a variable alive. `create_global_step()` must be found again by
# `get_global_step()` although nobody kept what it returned.
_KEEPERS = frozenset({GraphKeys.GLOBAL_STEP})


class Graph:
    """A set of names and of collections.

    Variables are put into the graph that is the default when they are made. Collections list
    variables in the order of their creation and hold them weakly: a variable that the program has
    dropped is gone from them and doesn't train on. All else that is put into a collection is held.
    All methods may be called from several threads.

    Examples
    --------
    >>> import fastopt as fo
    >>> with fo.Graph().as_default() as graph:
    ...     w = fo.Variable([1.0, 2.0], name="w")
    ...     w_1 = fo.Variable([3.0], name="w")
    >>> w_1.name
    'w_1'
    >>> [v.name for v in graph.get_collection(fo.GraphKeys.TRAINABLE_VARIABLES)]
    ['w', 'w_1']
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._names: dict[str, int] = {}
        # A collection maps keys to values, or to weak references to them. The key decides what "the
        # same entry" means: for variables identity, for train operations the name.
        self._collections: dict[str, dict[Any, Any]] = {}
        self._next_key = 0

    def unique_name(self, name: str) -> str:
        """Take and return `name`, or `name` with the first free of the suffixes ``_1``, ``_2``...

        A name stays taken when its variable is gone, so that names do not depend on when that
        happens.

        Parameters
        ----------
        name : str
            The wanted name. Case matters, unlike in TensorFlow.

        Raises
        ------
        TypeError
            If it is not a string.
        ValueError
            If it is empty.
        """
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, got {name!r} of type {type(name).__name__}")
        if not name:
            raise ValueError("name must not be empty")
        with self._lock:
            count = self._names.get(name, 0)
            unique = name
            if name in self._names:
                count = max(count, 1)
                while (unique := f"{name}_{count}") in self._names:
                    count += 1
                self._names[name] = count + 1
            self._names[unique] = 0
            return unique

    def _release_name(self, name: str) -> None:
        """Give a name back: that of a variable whose making has failed and that nobody has seen."""
        with self._lock:
            self._names.pop(name, None)
            wanted, _, suffix = name.rpartition("_")
            if suffix.isdigit() and wanted in self._names:
                self._names[wanted] = min(self._names[wanted], int(suffix))

    def _set_train_op(self, operation: Any) -> None:
        """Put an operation into `TRAIN_OP` as `add_to_collection` does, but fast: once a step."""
        operations = self._collections.get(GraphKeys.TRAIN_OP)
        if operations is None:
            self.add_to_collection(GraphKeys.TRAIN_OP, operation)
        else:
            operations[operation.name] = operation

    def add_to_collection(self, name: str, value: Any) -> None:
        """Put `value` at the end of the collection `name`.

        Parameters
        ----------
        name : str
            The collection. It comes into being with its first value.
        value : object
            Whatever is collected. A variable that is in the collection stays where it is. In
            `TRAIN_OP` a value takes the place of one with the same ``name`` attribute, so that a
            training loop collects one operation and not one a step.

        Raises
        ------
        TypeError
            If `name` is not a string.
        """
        if not isinstance(name, str):
            raise TypeError(f"a collection's name must be a string, got {name!r}")
        with self._lock:
            collection = self._collections.setdefault(name, {})
            if getattr(value, "_held_weakly", False):
                key: Any = id(value)
                if name in _KEEPERS:
                    collection[key] = value
                elif key not in collection or collection[key]() is not value:
                    collection.pop(key, None)
                    collection[key] = _weak_entry(collection, key, value)
            else:
                if name == GraphKeys.TRAIN_OP and isinstance(getattr(value, "name", None), str):
                    key = value.name
                else:
                    key = (self._next_key,)
                    self._next_key += 1
                collection[key] = value

    def get_collection(self, name: str, scope: str | None = None) -> list[Any]:
        """Return the values of a collection in the order in which they were put there.

        Parameters
        ----------
        name : str
            The collection; an unknown one is empty.
        scope : str, optional
            A regular expression. Only values whose ``name`` begins with a match of it are returned.

        Returns
        -------
        list
            A new list.
        """
        with self._lock:
            entries = list(self._collections.get(name, {}).values())
        values = [entry() if isinstance(entry, weakref.ref) else entry for entry in entries]
        values = [value for value in values if value is not None]
        if scope is not None:
            pattern = re.compile(scope)
            values = [v for v in values if pattern.match(getattr(v, "name", None) or "")]
        return values

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Return a context manager that makes this the default graph of the thread.

        Examples
        --------
        >>> import fastopt as fo
        >>> with fo.Graph().as_default() as graph:
        ...     fo.get_default_graph() is graph
        True
        """
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    # A graph is a place and not a value: a copy of a variable is put into a graph, it doesn't copy
    # one.

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return self

    def __reduce__(self) -> Any:
        return get_default_graph, ()

    def __repr__(self) -> str:
        n = len(self.get_collection(GraphKeys.GLOBAL_VARIABLES))
        return f"<Graph of {n} variables>"


def _weak_entry(collection: dict[Any, Any], key: Any, value: Any) -> weakref.ref[Any]:
    """Return a weak reference that takes itself out of the collection when the value is gone.

    The callback runs whenever the collector does, so it takes no lock: each step is one dict
    operation.
    """

    def forget(ref: weakref.ref[Any]) -> None:
        if collection.get(key) is ref:
            collection.pop(key, None)

    return weakref.ref(value, forget)


_current: ContextVar[Graph | None] = ContextVar("fastopt_graph", default=None)
_default = Graph()


def get_default_graph() -> Graph:
    """Return the graph that new variables join.

    Returns
    -------
    Graph
        The one that `Graph.as_default` put in force in this thread, else that of the process.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.Variable(0.0).graph is fo.get_default_graph()
    True
    """
    return _current.get() or _default


def reset_default_graph() -> None:
    """Give the process a fresh default graph, without names and collections.

    Variables made before live on in the graph they were made in.

    Raises
    ------
    RuntimeError
        Inside a `Graph.as_default`, whose graph is not this function's to replace.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.reset_default_graph()
    >>> fo.trainable_variables()
    []
    """
    global _default
    if _current.get() is not None:
        raise RuntimeError("reset_default_graph() was called inside a Graph.as_default() block")
    _default = Graph()


def add_to_collection(name: str, value: Any) -> None:
    """Put `value` into a collection of the default graph.

    Parameters
    ----------
    name : str
        The collection.
    value : object
        Whatever is collected; see `Graph.add_to_collection` for what is held weakly.

    Raises
    ------
    TypeError
        If `name` is not a string.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.add_to_collection("notes", "warm start")
    >>> fo.get_collection("notes")
    ['warm start']
    """
    get_default_graph().add_to_collection(name, value)


def get_collection(name: str, scope: str | None = None) -> list[Any]:
    """Return a collection of the default graph.

    Parameters
    ----------
    name : str
        The collection; an unknown one is empty.
    scope : str, optional
        A regular expression. Only values whose ``name`` begins with a match of it are returned.

    Returns
    -------
    list
        A new list, in the order in which the values were put there.

    Examples
    --------
    >>> import fastopt as fo
    >>> with fo.Graph().as_default():
    ...     w, b = fo.Variable(0.0, name="dense/w"), fo.Variable(0.0, name="head/b")
    ...     [v.name for v in fo.get_collection(fo.GraphKeys.GLOBAL_VARIABLES, "dense/")]
    ['dense/w']
    """
    return get_default_graph().get_collection(name, scope)


def global_variables(scope: str | None = None) -> list[Variable]:
    """Return all variables of the default graph, in the order of their creation.

    Parameters
    ----------
    scope : str, optional
        Only those whose name begins with a match of this regular expression.

    Examples
    --------
    >>> import fastopt as fo
    >>> with fo.Graph().as_default():
    ...     w, step = fo.Variable(0.0, name="w"), fo.create_global_step()
    ...     [v.name for v in fo.global_variables()]
    ['w', 'global_step']
    """
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Variable]:
    """Return the trainable variables of the default graph, in the order of their creation.

    Parameters
    ----------
    scope : str, optional
        Only those whose name begins with a match of this regular expression.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.reset_default_graph()
    >>> w = fo.Variable([1.0], name="w")
    >>> step = fo.Variable(0, trainable=False)
    >>> [v.name for v in fo.trainable_variables()]
    ['w']
    """
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)
