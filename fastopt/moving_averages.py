"""Exponential moving averages of variables.

An average of the weights often generalises better than the weights at the end of training
(B. T. Polyak and A. B. Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fastopt._arrays import (
    cast_real,
    compute_dtype,
    index_array,
    real_array,
    shown,
)
from fastopt._shadows import Moves, Shadow, move
from fastopt._slots import WeakIdentityMap
from fastopt._validate import Real
from fastopt.graph import GraphKeys, get_default_graph
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]

_Debiasing = tuple[Array, float]  # an average that began at 0, and how much of it is not that 0

_DECAY = Real(ge=0, le=1)
_COUNT = Real(ge=0)


class ExponentialMovingAverage:
    """Shadows of variables that follow them slowly: ``shadow -= (1 - decay) * (shadow - value)``.

    The first :meth:`apply` makes a shadow of each variable, with its value at that time; this and
    each later call moves all shadows by one step.

    Parameters
    ----------
    decay : float, callable or schedule
        In [0, 1]; close to 1 for a slow average. Read at each ``apply``.
    num_updates : int, Variable or callable, optional
        How many updates there have been, read at each ``apply``. The decay is then
        ``min(decay, (1 + num_updates) / (10 + num_updates))``, so that early averages move faster.
    zero_debias : bool, default False
        Correct the averages of functions, which begin at 0, for that beginning. Averages of
        variables begin at the variable's value and need no correction.
    name : str, default "ExponentialMovingAverage"
        Shadows are named ``<variable>/<name>``. They have the variable's dtype; float32 for one of
        16 bits.

    Raises
    ------
    TypeError
        If a number is none or `zero_debias` is not a bool.
    ValueError
        If a number is out of its range, or `name` is empty.

    Notes
    -----
    The decay is computed in float64, in TensorFlow in float32. Where TensorFlow's graph mode
    averages a tensor, which it evaluates anew in each step, this class averages a function: pass a
    callable without arguments, such as the loss. With a decay that varies, `zero_debias` divides by
    the sum of weights that were given out; TensorFlow takes the present decay to the power of the
    number of steps, which is the same for a constant decay.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> w = fo.Variable(np.array([10.0, 20.0]), name="w")
    >>> ema = fo.ExponentialMovingAverage(decay=0.75)
    >>> ema.apply([w])
    >>> _ = w.assign([20.0, 40.0])
    >>> ema.apply([w])
    >>> ema.average(w).numpy()
    array([12.5, 25. ])
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        owner = type(self).__name__
        if not isinstance(zero_debias, bool | np.bool_):
            raise TypeError(f"{owner}: zero_debias must be a bool, got {shown(zero_debias)}")
        if not name or not isinstance(name, str):
            raise ValueError(f"{owner}: name must be a string that is not empty, got {name!r}")
        self._decay = _DECAY.accept(owner, "decay", decay)
        self._num_updates = (
            None if num_updates is None else _COUNT.accept(owner, "num_updates", num_updates)
        )
        self._zero_debias = bool(zero_debias)
        self._name = name
        self._shadows: WeakIdentityMap[Variable, Shadow] = WeakIdentityMap()
        self._functions: dict[Callable[[], Any], _FunctionAverage] = {}
        # Restored averages of functions that have not been averaged yet, by name.
        self._waiting: dict[str, _Debiasing] = {}

    @property
    def name(self) -> str:
        """The name of this average."""
        return self._name

    def apply(
        self,
        var_list: Iterable[Any] | None = None,
        *,
        rows: Mapping[Variable, Any] | None = None,
    ) -> None:
        """Make shadows where there are none yet, and move all of them by one step.

        Parameters
        ----------
        var_list : iterable of (Variable or callable), optional
            What to average. Default: the trainable variables of the default graph.
        rows : mapping from Variable to array_like of int, optional
            For large tables: which rows have changed since the last ``apply`` of this variable. The
            other rows are left for later: what they have missed is made up for when their average
            is read or they are listed. The averages are the same to within rounding, at a cost that
            does not depend on the size of the table. (A table that is averaged so has one more copy
            of itself, of the values that were averaged last. An optimizer that also moves rows
            without a gradient, as ``AdamOptimizer`` does, leaves no row unchanged.)

        Raises
        ------
        TypeError
            If `var_list` is no iterable, or an entry neither a variable of floating numbers nor a
            callable. Nothing has changed then.
        ValueError
            If the decay is out of its range at this step, `rows` lists a variable that is not in
            `var_list`, or a function's value has another shape than before.
        IndexError
            If a row does not exist.
        """
        graph = get_default_graph()
        if var_list is None:
            var_list = graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)
        elif isinstance(var_list, Variable) or not isinstance(var_list, Iterable):
            raise TypeError(
                f"var_list must be an iterable of variables and callables, got {shown(var_list)}"
            )
        entries = list(var_list)
        for position, entry in enumerate(entries):
            self._check(entry, position)
        listed = [] if rows is None else [(var, _rows_of(var, ids)) for var, ids in rows.items()]
        for var, _ in listed:
            if not any(var is entry for entry in entries):
                raise ValueError(f"rows lists variable {var.name!r}, which is not in var_list")
        decay = self._decay_now()
        values = {id(f): self._evaluated(f) for f in entries if not isinstance(f, Variable)}
        moves = Moves(decay)
        for entry in entries:
            if isinstance(entry, Variable):
                changed = None
                if listed:
                    changed = next((ids for var, ids in listed if var is entry), None)
                shadow = self._shadows.get(entry)
                moves.make_way(entry, shadow)
                if shadow is None:
                    shadow = self._made_shadow(entry)
                if changed is None:
                    moves.add(shadow, entry)
                else:
                    shadow.follow(entry, decay, changed)
            else:
                average = self._functions.get(entry)
                if average is None:
                    name = function_name(entry)
                    average = _FunctionAverage(values[id(entry)], f"{name}/{self._name}")
                    if name in self._waiting:
                        average.biased, average.weight = self._waiting.pop(name)
                    self._functions[entry] = average
                average.follow(values[id(entry)], decay, self._zero_debias)
        moves.make()

    def average(self, var: Any) -> Variable | None:
        """Return the shadow of a variable or function, ``None`` if it has none.

        Parameters
        ----------
        var : Variable or callable

        Returns
        -------
        Variable or None
            It does not train. It follows later calls of ``apply``.
        """
        if isinstance(var, Variable):
            return self._shadows.get(var)
        average = self._functions.get(var) if callable(var) else None
        return None if average is None else average.shadow

    def average_name(self, var: Any) -> str:
        """Return the name of the shadow that a variable or function has or would get.

        Parameters
        ----------
        var : Variable or callable

        Returns
        -------
        str
        """
        shadow = self.average(var)
        if shadow is not None:
            return shadow.name
        return f"{var.name if isinstance(var, Variable) else function_name(var)}/{self._name}"

    def variables_to_restore(
        self, moving_avg_variables: Iterable[Variable] | None = None
    ) -> dict[str, Variable]:
        """Return which variable to restore from which name, to go on with the averages.

        Parameters
        ----------
        moving_avg_variables : iterable of Variable, optional
            Variables that take the value of their average. Default: the trainable variables of the
            default graph, and those that are averaged.

        Returns
        -------
        dict
            The name of its average for each of these variables, its own name for all others.
        """
        graph = get_default_graph()
        if moving_avg_variables is None:
            averaged = graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)
            averaged += graph.get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES)
        else:
            averaged = list(moving_avg_variables)
        names = {self.average_name(var): var for var in averaged}
        own = {var.name for var in averaged}
        for var in graph.get_collection(GraphKeys.GLOBAL_VARIABLES):
            if var.name not in own:
                names.setdefault(var.name, var)
        return names

    def _decay_now(self) -> float:
        owner = type(self).__name__
        decay = _DECAY.read(owner, "decay", self._decay)
        if self._num_updates is not None:
            count = _COUNT.read(owner, "num_updates", self._num_updates)
            decay = min(decay, (1.0 + count) / (10.0 + count))
        return decay

    def _check(self, entry: Any, position: int) -> None:
        if isinstance(entry, Variable):
            if entry.dtype.kind != "f" and compute_dtype(entry.dtype).kind != "f":
                raise TypeError(
                    f"variable {entry.name!r} has dtype {entry.dtype}; only floating numbers have "
                    "a moving average"
                )
        elif not callable(entry):
            raise TypeError(
                f"var_list[{position}] must be a Variable or a callable, got {shown(entry)}"
            )

    def _evaluated(self, function: Callable[[], Any]) -> Array:
        name = function_name(function)
        value = _array(function(), f"the value of {name}")
        average = self._functions.get(function)
        if average is not None:
            before = average.biased
        elif name in self._waiting:
            before = self._waiting[name][0]
        else:
            return value
        if value.shape != before.shape:
            raise ValueError(
                f"{name} returned an array of shape {value.shape}, before {before.shape}"
            )
        return value.astype(before.dtype, copy=False)

    def _shadow(self, var: Variable) -> Shadow:
        shadow = self._shadows.get(var)
        return self._made_shadow(var) if shadow is None else shadow

    def _made_shadow(self, var: Variable) -> Shadow:
        with var.graph.as_default():
            # Of 16 bits in float32: an average moves by less than they can tell apart.
            value = var.numpy().astype(compute_dtype(var.dtype), copy=False)
            shadow = Shadow(value, False, f"{var.name}/{self._name}", copy=False)
        var.graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, var)
        self._shadows[var] = shadow
        return shadow


class _FunctionAverage:
    """The average of what a function returns, which begins at 0."""

    def __init__(self, value: Array, name: str) -> None:
        self.shadow = Variable(np.zeros(value.shape, value.dtype), False, name, copy=False)
        self.biased = np.zeros(value.shape, value.dtype)
        self.weight = 0.0  # how much of the average is not the 0 of the beginning

    def follow(self, value: Array, decay: float, zero_debias: bool) -> None:
        move(self.biased, value, decay)
        self.weight += (1.0 - self.weight) * (1.0 - decay)
        self._show(zero_debias)

    def restore(self, biased: Array, weight: float, zero_debias: bool) -> None:
        """Go on from a state that was saved."""
        self.biased, self.weight = biased, weight
        self._show(zero_debias)

    def _show(self, zero_debias: bool) -> None:
        self.shadow.assign(_debiased(self.biased, self.weight) if zero_debias else self.biased)


def assign_moving_average(
    variable: Variable, value: Any, decay: float, zero_debias: bool = True, name: str | None = None
) -> Variable:
    """Move a variable one step towards a value: ``variable -= (1 - decay) * (variable - value)``.

    Parameters
    ----------
    variable : Variable
        The average, of floating numbers.
    value : array_like
        Of the variable's shape.
    decay : float
        In [0, 1].
    zero_debias : bool, default True
        Take the variable to be an average that began at 0, and correct it for that: it is the mean
        of all values with weights that decay. What has been averaged is kept from call to call, for
        as long as the variable lives; the variable's own value when this is first called plays no
        role.
    name : str, optional
        Not used.

    Returns
    -------
    Variable
        The variable itself.

    Raises
    ------
    TypeError
        If `variable` is no variable of floating numbers, or `value` no array of real numbers.
    ValueError
        If the shapes differ or `decay` is out of its range.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> mean = fo.Variable(np.zeros(2), trainable=False)
    >>> _ = fo.assign_moving_average(mean, [1.0, 2.0], 0.5)
    >>> fo.assign_moving_average(mean, [4.0, 2.0], 0.5).numpy()
    array([3., 2.])
    """
    owner = "assign_moving_average"
    if not isinstance(variable, Variable) or variable.dtype.kind != "f":
        raise TypeError(f"{owner}: variable must be a floating Variable, got {shown(variable)}")
    decay = _DECAY.read(owner, "decay", _DECAY.accept(owner, "decay", decay))
    new = _array(value, f"{owner}: value", variable.dtype)
    if new.shape != variable.shape:
        raise ValueError(
            f"{owner}: value has shape {new.shape}, variable {variable.name!r} {variable.shape}"
        )
    with variable._lock:
        if not zero_debias:
            average = variable.numpy()
            move(average, new, decay)
            return variable.assign(average)
        state = _BIASED.get(variable)
        if state is None:
            state = _BIASED[variable] = (np.zeros(new.shape, new.dtype), np.zeros(()))
        biased, weight = state
        move(biased, new, decay)
        weight += (1.0 - weight) * (1.0 - decay)
        return variable.assign(_debiased(biased, float(weight)))


_BIASED: WeakIdentityMap[Variable, tuple[Array, Array]] = WeakIdentityMap()


def debiasing_of(variable: Variable) -> _Debiasing | None:
    """Return what `assign_moving_average` has kept for a variable: the biased average, its weight.

    Returns
    -------
    (ndarray, float) or None
    """
    state = _BIASED.get(variable)
    return None if state is None else (state[0], float(state[1]))


def set_debiasing(variable: Variable, state: _Debiasing | None) -> None:
    """Let `assign_moving_average` go on from what `debiasing_of` returned, in another process say.

    Parameters
    ----------
    variable : Variable
        The average.
    state : (ndarray, float) or None
        The array is kept. With ``None`` the average begins anew.
    """
    with variable._lock:
        if state is None:
            _BIASED.pop(variable, None)
        else:
            _BIASED[variable] = state[0], np.array(state[1])


def _debiased(biased: Array, weight: float) -> Array:
    """Divide by the sum of weights; it is 0 as long as all decays were 1."""
    return (biased / (weight or 1.0)).astype(biased.dtype, copy=False)


def _array(value: Any, what: str, dtype: np.dtype[Any] | None = None) -> Array:
    if isinstance(value, IndexedSlices):
        raise TypeError(f"{what} must be an array, got {shown(value)}")
    array = real_array(value, what)
    if dtype is None:
        dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    return cast_real(array, dtype, what)


def _rows_of(var: Any, ids: Any) -> Array:
    if not isinstance(var, Variable) or not var.shape:
        raise TypeError(f"rows must map variables with rows to row numbers, got {shown(var)}")
    name = f"rows of variable {var.name!r}"
    if isinstance(ids, IndexedSlices):
        ids = ids.indices
    array = np.unique(index_array(ids, name)).astype(np.int64, copy=False)
    if array.size and not (0 <= array[0] and array[-1] < var.shape[0]):
        bad = array[0] if array[0] < 0 else array[-1]
        raise IndexError(f"{name}: index {int(bad)} is out of range for {var.shape[0]} rows")
    return array


def function_name(function: Any) -> str:
    """Return the name by which an average knows a function."""
    return str(getattr(function, "__name__", type(function).__name__)).strip("<>")
