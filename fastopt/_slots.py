"""Where an optimizer keeps what it remembers about variables: the base of `Optimizer`.

Two shelves: slots (slot name, then variable) and non-slot variables (name, per graph). Variables
are told apart by identity and held weakly, so that a slot goes with its variable.

A call that fails before it has updated anything must leave nothing behind. So what a call creates
is written down in a `Journal`, and taken away again if the call fails.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fastopt._arrays import shown
from fastopt._kernels import _memory
from fastopt._validate import UnsupportedTypeError
from fastopt.autodiff import executing_eagerly
from fastopt.graph import Graph, get_default_graph
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]

K = TypeVar("K")
T = TypeVar("T")


class WeakIdentityMap(MutableMapping[K, T]):
    """A mapping whose keys are compared by identity and held weakly.

    `weakref.WeakKeyDictionary` asks for equality, which is an array for a variable.
    """

    __slots__ = ("__weakref__", "_copied", "_items")

    def __init__(self) -> None:
        self._items: dict[int, tuple[weakref.ref[K], T]] = {}
        # Items of a deep copy whose keys are not decided yet, and the memo that decides.
        self._copied: tuple[list[tuple[K, T]], dict[int, Any]] | None = None

    def __setitem__(self, key: K, value: T) -> None:
        self._settle()
        ident = id(key)
        shelf = weakref.ref(self)

        def forget(ref: weakref.ref[K]) -> None:
            owner = shelf()
            if owner is not None:
                entry = owner._items.get(ident)
                if entry is not None and entry[0] is ref:
                    owner._items.pop(ident, None)

        self._items[ident] = (weakref.ref(key, forget), value)

    def __getitem__(self, key: K) -> T:
        self._settle()
        entry = self._items.get(id(key))
        if entry is None or entry[0]() is not key:  # another object may have had this id
            raise KeyError(key)
        return entry[1]

    def __delitem__(self, key: K) -> None:
        self[key]
        del self._items[id(key)]

    def __contains__(self, key: object) -> bool:
        self._settle()
        entry = self._items.get(id(key))
        return entry is not None and entry[0]() is key

    def __iter__(self) -> Iterator[K]:
        self._settle()
        # A key may die while somebody iterates.
        return (key for ref, _ in list(self._items.values()) if (key := ref()) is not None)

    def __len__(self) -> int:
        self._settle()
        return len(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (), None, None, iter(list(self.items()))

    def __deepcopy__(self, memo: dict[int, Any]) -> WeakIdentityMap[K, T]:
        """Copy the values; a key stands for its copy if it is copied too, else for itself.

        Whether the key is copied in the same `copy.deepcopy` may not be known before that is over,
        so it is looked up when the copy is first used.
        """
        other: WeakIdentityMap[K, T] = type(self)()
        memo[id(self)] = other
        other._copied = ([(key, copy.deepcopy(value, memo)) for key, value in self.items()], memo)
        return other

    def _settle(self) -> None:
        if self._copied is not None:
            items, memo = self._copied
            self._copied = None
            for key, value in items:
                self[memo.get(id(key), key)] = value


class Journal:
    """What one call has created, so that it can be undone."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[MutableMapping[Any, Any], Any, Variable | None]] = []

    def note(self, shelf: MutableMapping[Any, Any], key: Any, made: Variable | None = None) -> None:
        """Remember that `key` was put on `shelf`, and which variable was made for it."""
        self._entries.append((shelf, key, made))

    def undo(self) -> None:
        """Take everything away again, last first, and give the names back."""
        while self._entries:
            shelf, key, made = self._entries.pop()
            shelf.pop(key, None)
            if made is not None:
                made.graph._release_name(made.name)


Slots = WeakIdentityMap[Variable, Variable]


class CallState(threading.local):
    """What one call of `apply_gradients` keeps between its hooks; every thread has its own."""

    journal: Journal | None = None
    graph: Graph | None = None
    step: Any = None  # the global_step of the call, for schedules

    def forget(self) -> None:
        """End the call."""
        self.graph = self.step = None


class SlotKeeper:
    """The part of an optimizer that keeps its state."""

    def __init__(self) -> None:
        self._slots: dict[str, Slots] = {}
        self._non_slots: WeakIdentityMap[Graph, dict[str, Variable]] = WeakIdentityMap()
        # Restored values of non-slot variables, by name, for the first to be made. They stay: the
        # call that makes it may fail.
        self._restorable: dict[str, Array] = {}
        self._make_transient()

    def _make_transient(self) -> None:
        """Make what is neither copied nor pickled."""
        self._state_lock = threading.RLock()
        self._call = CallState()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_state_lock"], state["_call"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_transient()

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """Return a slot of a variable: what the optimizer remembers about it.

        Parameters
        ----------
        var : Variable
            A variable passed to `apply_gradients` or `minimize`.
        name : str
            The name of the slot, such as ``"momentum"``.

        Returns
        -------
        Variable or None
            ``None`` if the slot has never been used, or not for this variable. It is never created
            here.

        Raises
        ------
        UnsupportedTypeError
            If `var` is not a variable, and the slot name is in use (a `TypeError`, and an
            `AttributeError` as in TensorFlow).
        """
        named = self._slots.get(name)
        if named is None:
            return None
        if not isinstance(var, Variable):
            raise UnsupportedTypeError(f"var must be a fastopt Variable, got {shown(var)}")
        return named.get(var)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that are in use, sorted."""
        return sorted(self._slots)

    def variables(self) -> list[Variable]:
        """Return the state of the optimizer as variables, sorted by name.

        Returns
        -------
        list of Variable
            All slots and non-slot variables, unless eager mode is on only those of the default
            graph.
        """
        found = [slot for named in list(self._slots.values()) for slot in list(named.values())]
        found.extend(self._non_slot_variables())
        if not executing_eagerly():
            graph = get_default_graph()
            found = [var for var in found if var.graph is graph]
        return sorted(found, key=lambda var: var.name)

    # ------------------------------------------------------------------ hooks for rules

    def _slot_dict(self, slot_name: str) -> Slots:
        """Return the slots of one name, a mapping from variables, made if it is not there."""
        named = self._slots.get(slot_name)
        if named is None:
            with self._state_lock:
                if slot_name not in self._slots:
                    self._slots[slot_name] = WeakIdentityMap()
                    self._note(self._slots, slot_name)
                named = self._slots[slot_name]
        return named

    def _zeros_slot(self, var: Variable, slot_name: str, op_name: str) -> Variable:
        """Return a slot, made of zeros of the variable's shape and dtype if it is not there."""
        return self._slot(var, slot_name, op_name, lambda: np.zeros(var.shape, var.dtype))

    def _get_or_make_slot(self, var: Variable, val: Any, slot_name: str, op_name: str) -> Variable:
        """Return a slot, made with this value if it is not there."""
        return self._slot(var, slot_name, op_name, lambda: np.array(val))

    def _get_or_make_slot_with_initializer(
        self,
        var: Variable,
        initializer: Callable[..., Any],
        shape: tuple[int, ...],
        dtype: Any,
        slot_name: str,
        op_name: str,
    ) -> Variable:
        """Return a slot, made by ``initializer(shape, dtype)`` if it is not there."""

        def make() -> Array:
            return np.array(initializer(shape, dtype), dtype=dtype)

        return self._slot(var, slot_name, op_name, make)

    def _slot(
        self, var: Variable, slot_name: str, op_name: str, make: Callable[[], Array]
    ) -> Variable:
        with self._state_lock:
            named = self._slot_dict(slot_name)
            slot = named.get(var)
            if slot is None:
                with var.graph.as_default():
                    slot = Variable(
                        make(), trainable=False, name=f"{var.name}/{op_name}", copy=False
                    )
                named[var] = slot
                self._note(named, var, slot)
            return slot

    def _rows_of_slots(self, var: Variable, rows: Array) -> dict[str, tuple[str, Array]]:
        """Return what the slots of a variable hold about some of its rows.

        Returns
        -------
        dict
            By the name of the slot: what stands for the optimizer in the slot's own name, and the
            rows; of a slot without rows all of it.
        """
        found: dict[str, tuple[str, Array]] = {}
        for slot_name, named in self._slots.items():
            slot = named.get(var)
            if slot is not None:
                has_rows = slot.shape[:1] == var.shape[:1]
                shape = (rows.size, *slot.shape[1:]) if has_rows else slot.shape
                part = _memory.empty(shape, slot.dtype, len(found) + 1)
                part[...] = slot._read()[rows] if has_rows else slot._read()
                found[slot_name] = slot.name.removeprefix(f"{var.name}/"), part
        return found

    def _move_slots(self, var: Variable, to: Variable, rows: dict[str, tuple[str, Array]]) -> None:
        """Give a variable what `_rows_of_slots` has found; the other one has no slots any more."""
        with self._state_lock:
            for slot_name, (op_name, value) in rows.items():
                self._slot(to, slot_name, op_name, partial(np.asarray, value))
                self._slots[slot_name].pop(var, None)

    def _slots_of(self, variables: Sequence[Variable]) -> list[Variable]:
        """Return the slots that these variables have."""
        found = [named.get(var) for named in list(self._slots.values()) for var in variables]
        return [slot for slot in found if slot is not None]

    def _create_non_slot_variable(
        self, initial_value: Any, name: str, colocate_with: Variable | None = None
    ) -> Variable:
        """Return a variable that belongs to the whole optimizer, made if it is not there.

        There is one of a name for each graph: that of `colocate_with` if it is given.
        """
        graph = self._non_slot_graph() if colocate_with is None else colocate_with.graph
        with self._state_lock:
            named = self._non_slots.get(graph)
            if named is None:
                named = self._non_slots[graph] = {}
            var = named.get(name)
            if var is None:
                value = np.array(initial_value() if callable(initial_value) else initial_value)
                if name in self._restorable and name not in self._non_slot_names():
                    value = self._restored(name, value)
                with graph.as_default():
                    var = Variable(value, trainable=False, name=name, copy=False)
                named[name] = var
                self._note(named, name, var)
            return var

    def _non_slot_names(self) -> set[str]:
        return {name for named in list(self._non_slots.values()) for name in named}

    def _restored(self, name: str, initial: Array) -> Array:
        """Return the restored value that waits for a non-slot variable."""
        waiting = self._restorable[name]
        if (waiting.shape, waiting.dtype) != (initial.shape, initial.dtype):
            raise ValueError(
                f"the restored value of {name!r} has shape {waiting.shape} and dtype "
                f"{waiting.dtype}, the variable has shape {initial.shape} and dtype {initial.dtype}"
            )
        return waiting.copy()

    def _get_non_slot_variable(self, name: str, graph: Graph | None = None) -> Variable | None:
        """Return a variable made by `_create_non_slot_variable`, or ``None``."""
        named = self._non_slots.get(self._non_slot_graph() if graph is None else graph)
        return None if named is None else named.get(name)

    def _non_slot_variables(self) -> list[Variable]:
        """Return all variables made by `_create_non_slot_variable`."""
        return [var for named in list(self._non_slots.values()) for var in list(named.values())]

    def _non_slot_graph(self) -> Graph:
        # In a step that of its variables, which need not be the default one.
        return self._call.graph or get_default_graph()

    def _note(self, shelf: Any, key: Any, made: Variable | None = None) -> None:
        journal = self._call.journal
        if journal is not None:
            journal.note(shelf, key, made)

    @contextlib.contextmanager
    def _creating(self, variables: Sequence[Variable]) -> Iterator[Journal]:
        """Note what is created, and take it back if that fails."""
        call = self._call
        outer, call.journal = call.journal, Journal()
        call.graph = min(variables, key=lambda var: var.name).graph
        try:
            yield call.journal
        except BaseException:
            call.journal.undo()
            raise
        finally:
            call.journal = outer
