"""`KernelOptimizer`: optimizers whose update is a rule of the kernels.

A variable of 16 bits is updated in float32: the slot "master" holds its weights as float32, with
the bits that 16 don't hold, and is what the rule works on; the variable is the master, rounded.

A class names its hyperparameters with their constraints, its slots, its rule, and the scalars of a
step. All else is here, and the same for every rule.

The first call with a list of variables goes the long way of `Optimizer`: it checks everything,
makes the slots, and ends with a `Plan`, which holds what was found out about the variables. Plans
are kept. A later call with the same variables whose gradients fit exactly takes a plan and goes
straight to the kernel, with no work in Python for each pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from fastopt import _pairs
from fastopt._arrays import compute_dtype, is_half, shown
from fastopt._batch import Batch, HookBatch
from fastopt._kernels import _memory
from fastopt._kernels._counters import raise_versions
from fastopt._kernels._deferred import Ledger
from fastopt._kernels._half import widen
from fastopt._kernels._plan import Plan
from fastopt._kernels.rules import RULES
from fastopt._pairs import Pair
from fastopt._slots import CallState, Journal, WeakIdentityMap
from fastopt._validate import Constraint, Real, accept_all
from fastopt.deferred_rows import OWNERS, make_ledger
from fastopt.graph import Graph
from fastopt.indexed_slices import IndexedSlices
from fastopt.operation import Operation
from fastopt.optimizer import Optimizer, advance
from fastopt.optimizers._decay import WEIGHT_DECAY, Decay, Own
from fastopt.optimizers._plans import PlanBatch, Plans, RepeatedBatch, rounds
from fastopt.optimizers._range import require_finite
from fastopt.optimizers._rounding import key_of_call, key_of_variable
from fastopt.schedules.base import at_step
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]
Scalars = tuple[float, ...]

_MASTER = "master"
_ROUNDING_STEP = "rounding_step"
_MOST_PLANS = 16  # of one key; enough for as many threads to apply at once without making new ones
_NONE: list[PlanBatch] = []
_HOOKS = (
    "_create_slots",
    "_apply_dense",
    "_apply_sparse",
    "_apply_sparse_duplicate_indices",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)
# What `apply_gradients` calls on the way to `_apply`.
_STEPS = ("_apply_once", "_apply_scaled", "_apply_whole")


@dataclass(frozen=True)
class Slot:
    """A slot that a rule needs for each variable.

    Attributes
    ----------
    name : str
        The name under which `Optimizer.get_slot` finds it.
    initial : str or float
        The number it is filled with, or the hyperparameter that holds that number.
    op_name : str, optional
        The hyperparameter that may hold what stands in the variable's name for the optimizer's
        name.
    per_row : bool
        It has one number for each row of the variable.
    """

    name: str
    initial: str | float = 0.0
    op_name: str | None = None
    per_row: bool = False


class _KernelCallState(CallState):
    """Also the hyperparameters of the step, and what the rule makes of them."""

    values: Mapping[str, Any] = {}
    scalars: Scalars = ()
    own: Own = MappingProxyType({})


class KernelOptimizer(Optimizer):
    """Base class of the optimizers whose update is a rule of the kernels.

    A subclass gives `_rule`, `_scalars` and, if it counts calls, `_advance`. One that overrides a
    hook of `Optimizer` gets it called.

    Attributes
    ----------
    _constraints : mapping of str to Constraint
        What each hyperparameter may be. The names are those of the constructor's arguments.
    _slot_table : tuple of Slot
        The slots, in the order in which they are made; their names are those of the rule.
    _untouched : {"skip", "update", "defer"}
        What a sparse gradient means for rows that it doesn't list: "update" is a gradient of zero;
        "defer" is what the rule's page says about untouched rows, done when they are next wanted.
    _common : frozenset of str
        Hyperparameters that a variable can't have for itself.
    _own_flags : frozenset of str
        Hyperparameters that are no numbers, but that a variable can have for itself.
    """

    _constraints: Mapping[str, Constraint] = {}
    _slot_table: tuple[Slot, ...] = ()
    _untouched: Literal["skip", "update", "defer"] = "skip"
    _common: ClassVar[frozenset[str]] = frozenset()
    _own_flags: ClassVar[frozenset[str]] = frozenset()
    _hooks_are_ours: ClassVar[bool] = True
    _steps_are_ours: ClassVar[bool] = True
    _steps_go_straight: ClassVar[bool] = True
    _counts_calls: ClassVar[bool] = False
    _decays: Decay | None = None  # `_decay`, if there is a rate that may be another than 0

    _call: _KernelCallState

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A module of this package fills in hooks in a way that plans know of; anybody else's are
        # called.
        cls._hooks_are_ours = all(_is_ours(cls, hook) for hook in _HOOKS)
        cls._steps_are_ours = all(_is_ours(cls, hook) for hook in ("_prepare", "_finish"))
        cls._steps_go_straight = all(
            getattr(cls, step) is getattr(Optimizer, step) for step in _STEPS
        )
        cls._counts_calls = cls._advance is not KernelOptimizer._advance

    def __init__(
        self, use_locking: bool, name: str, loss_scale: Any = None, **hyperparameters: Any
    ) -> None:
        super().__init__(use_locking, name, loss_scale)
        self._hyperparameters = accept_all(type(self).__name__, self._constraints, hyperparameters)
        self._rule_name = self._rule()
        self._own: WeakIdentityMap[Variable, dict[str, Any]] = WeakIdentityMap()
        self._decay: Decay | None = None
        self._rounding: int | None = None  # the seed of stochastic rounding
        self._look_through()

    def _look_through(self) -> None:
        """Note which hyperparameters may change, and whether all variables are updated alike."""
        self._varying = tuple(
            name
            for name, constraint in self._constraints.items()
            if isinstance(constraint, Real) and type(self._hyperparameters[name]) is not float
        )
        kept = (self._hyperparameters, *self._own.values())
        decay = self._decay
        if decay is not None and not any(map(decay.happens, kept)):
            decay = None
        self._is_uniform = not self._own and self._rounding is None
        if decay is not self._decays:
            self._decays = decay
            self._plans = Plans()  # after what they are made from

    def _make_transient(self) -> None:
        super()._make_transient()
        self._call = _KernelCallState()
        self._is_plain = self._hooks_are_ours and self._steps_are_ours and not self._use_locking
        self._goes_straight = (
            self._is_plain and self._loss_scale is None and self._steps_go_straight
        )
        self._plans = Plans()
        self._ledgers: WeakIdentityMap[Variable, Ledger] = WeakIdentityMap()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_plans"], state["_is_plain"], state["_goes_straight"], state["_ledgers"]
        return state

    # ------------------------------------------------------------------ settings of one variable

    def configure(self, var: Variable | Sequence[Variable], **settings: Any) -> None:
        """Give variables hyperparameters of their own.

        Parameters
        ----------
        var : Variable, or list or tuple of Variable
            The variables. Others keep the hyperparameters of the optimizer.
        **settings : float, callable, Variable or array_like scalar
            Hyperparameters by name, with the constraints of the constructor, and `weight_decay`
            for every rule (see `decouple`). Earlier settings of other names stay.

        Raises
        ------
        TypeError
            If `var` is not a variable or variables, a name is not a hyperparameter of this rule, or
            a value is of the wrong type.
        ValueError
            If a value is out of bounds, or the hyperparameter is one for all variables. Nothing has
            changed then.

        Examples
        --------
        >>> import numpy as np
        >>> import fastopt as fo
        >>> w, bias = fo.Variable(np.ones(2), name="w"), fo.Variable(np.ones(2), name="bias")
        >>> opt = fo.GradientDescentOptimizer(0.5)
        >>> opt.configure(bias, learning_rate=0.25)
        >>> opt.configure(w, weight_decay=0.5)
        >>> done = opt.apply_gradients([(np.ones(2), w), (np.ones(2), bias)])
        >>> w.numpy(), bias.numpy()
        (array([0., 0.]), array([0.75, 0.75]))
        """
        owner = type(self).__name__
        variables = [var] if isinstance(var, Variable) else _listed(var, owner)
        constraints = {"weight_decay": WEIGHT_DECAY, **self._constraints}
        kept = {}
        for name, value in settings.items():
            constraint = constraints.get(name)
            if constraint is None:
                raise TypeError(
                    f"{owner}.configure: no hyperparameter {name!r}; there are"
                    f" {', '.join(constraints)}"
                )
            number = isinstance(constraint, Real) and not constraint.fixed
            if name in self._common or not (number or name in self._own_flags):
                raise ValueError(
                    f"{owner}.configure: {name} is one for all variables of an optimizer"
                )
            kept[name] = constraint.accept(owner, name, value)
        with self._state_lock:
            if "weight_decay" in kept and "weight_decay" not in self._constraints:
                self._let_decay(Decay(), 0.0)
            for each in variables:
                self._own[each] = {**self._own.get(each, {}), **kept}
            self._look_through()

    def _let_decay(self, decay: Decay, weight_decay: Any) -> None:
        """Add a weight decay to the hyperparameters."""
        self._constraints = {**self._constraints, "weight_decay": WEIGHT_DECAY}
        self._hyperparameters["weight_decay"] = weight_decay
        self._decay = decay
        self._look_through()

    def _move_slots(self, var: Variable, to: Variable, rows: dict[str, tuple[str, Array]]) -> None:
        with self._state_lock:
            super()._move_slots(var, to, rows)
            if var in self._own:
                self._own[to] = self._own.pop(var)
            self._ledgers.pop(var, None)
            self._plans = Plans()  # those there are know the slots
            self._look_through()

    def _round_stochastically(self, seed: int) -> None:
        """Do without masters of 16-bit variables."""
        with self._state_lock:
            if self._slots.get(_MASTER):
                owner = type(self).__name__
                names = sorted(var.name for var in self._slots[_MASTER])
                raise ValueError(f"{owner}: {', '.join(map(repr, names))} have masters already")
            self._rounding = seed
            self._look_through()
            self._plans = Plans()

    # ------------------------------------------------------------------ what a rule's class gives

    def _rule(self) -> str:
        """Return the name of the rule on the kernels' page."""
        raise NotImplementedError(f"{type(self).__name__} doesn't name its rule")

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        """Return the scalars of the rule for one step.

        Parameters
        ----------
        values : mapping
            The hyperparameters at this step.
        graph : Graph
            That of the variables, to which non-slot variables belong.
        """
        raise NotImplementedError(f"{type(self).__name__} doesn't give the scalars of its rule")

    def _advance(self, values: Mapping[str, Any], graph: Graph) -> None:
        """Advance what counts calls, after all variables have been updated."""

    # ------------------------------------------------------------------ hooks of Optimizer

    def _create_slots(self, var_list: list[Variable]) -> None:
        for var in var_list:
            for place, slot in enumerate(self._slot_table, 1):
                op_name = self._hyperparameters[slot.op_name] if slot.op_name else None
                fill = slot.initial
                if isinstance(fill, str):
                    fill = self._hyperparameters[fill]

                shape = var.shape[:1] if slot.per_row else var.shape

                def make(
                    var: Variable = var,
                    place: int = place,
                    fill: Any = fill,
                    shape: tuple[int, ...] = shape,
                ) -> Array:
                    array = _memory.empty(shape, compute_dtype(var.dtype), place)
                    array.fill(fill)
                    return array

                self._slot(var, slot.name, op_name or self._name, make)
            if not is_half(var.dtype):
                continue
            if self._rounding is None:
                op_name = f"{self._name}_master"
                self._slot(var, _MASTER, op_name, partial(widen, var._storage))
            else:
                self._create_non_slot_variable(np.int64(0), _ROUNDING_STEP, var)

    def _prepare(self) -> None:
        call = self._call
        graph = self._non_slot_graph()
        call.values = self._values(call.step)
        call.scalars = self._scalars(call.values, graph)
        call.own = self._own_scalars(call.values, call.step, graph)

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> None:
        self._count_call(self._call.values, self._non_slot_graph())

    def _count_call(self, values: Mapping[str, Any], graph: Graph) -> None:
        self._advance(values, graph)
        if self._rounding is not None:
            count = self._get_non_slot_variable(_ROUNDING_STEP, graph)
            if count is not None:  # there is a variable of 16 bits
                with count._lock:  # each call counts, however many threads apply at once
                    count._storage[()] = count._storage.item() + 1

    def _rounding_key(self, graph: Graph) -> int:
        """Return what the random numbers of this call depend on."""
        if self._rounding is None:
            return 0
        count = self._get_non_slot_variable(_ROUNDING_STEP, graph)
        return 0 if count is None else key_of_call(self._rounding, count._storage.item())

    def _apply_dense(self, grad: Array, var: Variable) -> None:
        self._apply_alone(grad, var)

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> None:
        self._apply_alone(grad, var)

    # ------------------------------------------------------------------ the short way

    def _apply(self, pairs: list[Any], global_step: Variable | None, name: str | None) -> Operation:
        # The course of `Optimizer._apply` without what is there for hooks of others. This is what a
        # step of many small variables consists of, so it is written out.
        first = pairs[0]
        if self._is_plain and type(first) is tuple and len(first) == 2:
            waiting = self._plans.get((len(pairs), id(first[1])), _NONE)
            batch = _taken(waiting)
            if batch is not None:
                plan = batch.plan
                try:
                    if not batch.constrained and plan.bind(pairs):
                        step = None
                        if global_step is not None:
                            self._require_step(global_step)
                        values: Mapping[str, Any] = self._hyperparameters
                        if self._varying:
                            values = self._values(global_step)
                        scalars = self._scalars(values, batch.graph)
                        if batch.epoch != OWNERS.epoch:
                            batch.take_over()
                        if not self._is_uniform:
                            own = self._own_scalars(values, global_step, batch.graph)
                            self._sweep(batch, pairs, values, scalars, own)
                        else:
                            try:
                                if batch.decay is None:
                                    plan.run(scalars)
                                else:
                                    plan.run(scalars, batch.decay.rate(values))
                            except OverflowError:
                                # Nothing was changed. The long way says which number it was.
                                return super()._apply(pairs, global_step, name)
                        raise_versions(pairs)
                        if self._counts_calls or not self._is_uniform:
                            self._count_call(values, batch.graph)
                        if global_step is not None:
                            step = advance(global_step)
                        return self._record(
                            name, batch.refs, plan.rows_touched, plan.dense_parameters, step
                        )
                finally:
                    plan.release()
                    waiting.append(batch)
        return super()._apply(pairs, global_step, name)

    def _values(self, global_step: Variable | None) -> Mapping[str, Any]:
        """Return the hyperparameters as they are at this step, checked."""
        if not self._varying:
            return self._hyperparameters
        values = self._hyperparameters.copy()
        for name in self._varying:
            kept = at_step(values[name], global_step)
            values[name] = self._constraints[name].read(type(self).__name__, name, kept)
        return values

    def _own_scalars(
        self, values: Mapping[str, Any], global_step: Variable | None, graph: Graph
    ) -> Own:
        """Return, by id, scalars and rate of decay of the variables with settings of their own."""
        found = {}
        for var, settings in self._own.items():
            mine = {**values, **settings}
            for name, value in settings.items():
                if not isinstance(value, float | bool):
                    owner = f"{type(self).__name__} for variable {var.name!r}"
                    kept = at_step(value, global_step)
                    mine[name] = self._constraints[name].read(owner, name, kept)
            rate = 0.0 if self._decay is None else self._decay.rate(mine)
            found[id(var)] = self._scalars(mine, graph), rate
        return found

    def _sweep(
        self,
        batch: PlanBatch,
        pairs: Sequence[Pair],
        values: Mapping[str, Any],
        scalars: Scalars,
        own: Own,
    ) -> None:
        """Update the variables whose gradients a plan has bound."""
        # A step that began before somebody asked for decay has none.
        rate = 0.0 if batch.decay is None else batch.decay.rate(values)
        key = self._rounding_key(batch.graph)
        try:
            if not own:
                batch.plan.run(scalars, rate, key)
                return
            each = [own.get(id(var), (scalars, rate)) for _, var in pairs]
            rates = 0.0 if batch.decay is None else [of_var for _, of_var in each]
            batch.plan.run([of_var for of_var, _ in each], rates, key)
        except OverflowError:
            self._require_finite([var for _, var in pairs], values, scalars, own)
            raise

    def _bind(self, pairs: list[Any]) -> PlanBatch | None:
        first = pairs[0]
        if type(first) is not tuple or len(first) != 2 or not self._hooks_are_ours:
            return None
        batch = _taken(self._plans.get((len(pairs), id(first[1])), _NONE))
        if batch is None:
            return None
        if batch.bind(pairs) and (not batch.constrained or _constraints_allow(pairs)):
            return batch
        batch.release()
        return None

    # ------------------------------------------------------------------ the long way

    def _batch(self, pairs: list[Pair], journal: Journal | None = None) -> Batch:
        if not self._hooks_are_ours:
            return HookBatch(pairs, journal)
        batches = [self._planned(each) for each in rounds(pairs)]
        return (
            batches[0] if len(batches) == 1 else RepeatedBatch(batches, [var for _, var in pairs])
        )

    def _planned(self, pairs: list[Pair]) -> PlanBatch:
        """Return a batch for checked pairs of distinct variables, with the gradients bound."""
        key = (len(pairs), id(pairs[0][1]))
        plans = self._plans
        decay = self._decays  # after `_plans`: those for it, or newer
        unfit: list[PlanBatch] = []
        try:
            while (batch := _taken(plans.get(key, _NONE))) is not None:
                if batch.bind(pairs):
                    return batch
                unfit.append(batch)
        finally:
            for other in reversed(unfit[:_MOST_PLANS]):
                other.release()
        variables = [var for _, var in pairs]
        rule = self._rule_name
        slots = [
            tuple(self._slots[name][var]._storage for name in RULES[rule].slots)
            for var in variables
        ]
        arrays, halves = zip(*map(self._weights, variables), strict=True)
        untouched = self._untouched
        ledgers: list[Ledger | None] = [None] * len(variables)
        all_decay = decay is not None and not decay.listed_rows_only and untouched == "skip"
        if untouched == "defer" or (all_decay and RULES[rule].reduction != "variable"):
            ledgers = [self._ledger(var) for var in variables]
        dense_only = self._dense_only(pairs, all_decay)
        if untouched == "defer":
            untouched = "update"  # where there is no ledger
        plan = Plan(
            rule,
            variables,
            list(arrays),
            slots,
            IndexedSlices,
            untouched,
            halves=list(halves),
            ledgers=ledgers,
            decay_listed=decay is not None and decay.listed_rows_only,
            dense_only=dense_only,
            rounding_keys=[key_of_variable(var) for var in variables],
        )
        plans.setdefault(key, [])
        batch = PlanBatch(plan, variables, ledgers, decay, plans)
        if not batch.bind(pairs):
            raise RuntimeError(
                f"{type(self).__name__}: checked gradients do not fit the kernels; please report"
                " this, with the dtypes and shapes of"
                f" {[(var.dtype, var.shape) for var in variables]}"
            )
        return batch

    def _dense_only(self, pairs: list[Pair], all_decay: bool) -> list[bool]:
        """Tell which variables take dense gradients only: 16 bits can't make up for missed steps.

        Where all rows are updated at once instead there is nothing to make up for.
        """
        waits = RULES[self._rule_name].untouched
        fades = self._untouched == "defer" and waits is not None and waits.moving is None
        found = []
        for gradient, var in pairs:
            alone = self._rounding is not None and is_half(var.dtype)
            found.append(alone and (all_decay or fades))
            if found[-1] and isinstance(gradient, IndexedSlices):
                what = "all rows decay" if all_decay else "the slots of all rows fade"
                raise ValueError(
                    f"{type(self).__name__}: {what} of variable {var.name!r}, also of those that a"
                    f" sparse gradient doesn't list; in {var.dtype} with stochastic rounding there"
                    " is no place to make up for that later"
                )
        return found

    def _moves_every_row(self) -> bool:
        """Whether a sparse gradient also moves rows that it doesn't list."""
        untouched = RULES[self._rule_name].untouched
        if self._untouched == "update":
            return True
        if self._untouched == "defer" and untouched is not None and untouched.moving is not None:
            return True
        return self._decays is not None and not self._decays.listed_rows_only

    def _weights(self, var: Variable) -> tuple[Array, Array | None]:
        """Return the numbers that the rule works on, and of which 16-bit storage they are."""
        if is_half(var.dtype) and self._rounding is None:
            return self._slots[_MASTER][var]._storage, var._storage
        return var._storage, None

    def _ledger(self, var: Variable) -> Ledger | None:
        """Return the ledger of a variable, the same one for all plans."""
        if is_half(var.dtype) and self._rounding is not None:
            return None
        slots = [self._slots[name][var] for name in RULES[self._rule_name].slots]
        master = self._slots[_MASTER][var] if is_half(var.dtype) else None
        with self._state_lock:
            ledger = self._ledgers.get(var)
            # Slots that a failed call took away again have been made anew.
            if ledger is None or any(
                slot._storage is not kept for slot, kept in zip(slots, ledger.slots, strict=True)
            ):
                ledger = make_ledger(self._rule_name, var, slots, master)
                if ledger is not None:
                    self._ledgers[var] = ledger
            return ledger

    def _apply_alone(self, grad: Any, var: Variable) -> None:
        """Update one variable: what a hook does when it is called by itself."""
        pairs = _pairs.checked([(grad, var)], type(self).__name__)
        memory = _pairs.require_storage([var], self._slots_of([var]))
        self._planned(list(memory.apart(pairs))).run(self)

    # ------------------------------------------------------------------ checks

    def _require_updatable(self, variables: Sequence[Variable]) -> None:
        super()._require_updatable(variables)
        for var in variables:
            for slot in self._slot_table:
                if isinstance(slot.initial, str):
                    self._require_initial(slot, slot.initial, var)

    def _require_ready(self, variables: Sequence[Variable]) -> None:
        call = self._call
        self._require_finite(variables, call.values, call.scalars, call.own)

    def _require_finite(
        self,
        variables: Sequence[Variable],
        values: Mapping[str, Any],
        scalars: Scalars,
        own: Own,
    ) -> None:
        """Check that the dtype of each variable holds what its step is made with.

        Plans check that too, at every step, but can't say which hyperparameter it came from.
        """
        decay = self._decays
        rate = 0.0 if decay is None or not values else decay.rate(values)
        names = (*RULES[self._rule_name].scalars, "rate of decay")
        for var in variables:
            numbers, rate_of_var = own.get(id(var), (scalars, rate))
            require_finite(
                type(self).__name__,
                var,
                {**values, **self._own.get(var, {})},
                dict(zip(names, (*numbers, rate_of_var), strict=False)),
            )

    def _require_initial(self, slot: Slot, hyperparameter: str, var: Variable) -> None:
        """Check that an initial value is within its bounds in the variable's dtype too."""
        constraint = self._constraints[hyperparameter]
        assert isinstance(constraint, Real)
        value = self._hyperparameters[hyperparameter]
        dtype = compute_dtype(var.dtype)
        with np.errstate(over="ignore", under="ignore"):
            rounded = dtype.type(value)
        if not constraint.holds(float(rounded)):
            raise ValueError(
                f"{type(self).__name__}: {hyperparameter} {value!r} is {float(rounded)!r} in"
                f" {dtype}, in which variable {var.name!r} is updated, but must be {constraint}"
            )


def _taken(waiting: list[PlanBatch]) -> PlanBatch | None:
    try:
        return waiting.pop() if waiting else None
    except IndexError:  # another thread was quicker
        return None


def _listed(variables: Any, owner: str) -> list[Variable]:
    """Return variables as a list, checked."""
    found = list(variables) if isinstance(variables, list | tuple) else [variables]
    for each in found:
        if not isinstance(each, Variable):
            raise TypeError(
                f"{owner}.configure: var must be a fastopt Variable or a list of them, got"
                f" {shown(each)}"
            )
    return found


def _constraints_allow(pairs: list[Pair]) -> bool:
    """Whether no gradient is sparse whose variable has a constraint on the whole of it."""
    return all(
        isinstance(gradient, np.ndarray) or _pairs.takes_slices(var) for gradient, var in pairs
    )


def _is_ours(cls: type, name: str) -> bool:
    """Whether a method comes from this package."""
    owner = next(base for base in cls.__mro__ if name in vars(base))
    return owner.__module__.partition(".")[0] == "fastopt"
