"""What a program has that belongs into a checkpoint, by names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastopt._arrays import shown
from fastopt._sums import Collected
from fastopt.accumulators import Accumulator
from fastopt.graph import GraphKeys, get_default_graph
from fastopt.loss_scale import LossScale
from fastopt.moving_averages import ExponentialMovingAverage, function_name
from fastopt.optimizer import Optimizer
from fastopt.variable import Variable
from fastopt.wrapper import OptimizerWrapper

# What TensorFlow calls the parts of an optimizer that is put around another one.
_PART_NAMES = {"_optimizer": "base_optimizer"}


class State:
    """What a call is about, each thing with its key.

    Parameters
    ----------
    optimizers, variables, averages, accumulators
        As `save` and `restore` take them.

    Raises
    ------
    TypeError
        If something is not of the kind its place is for.
    ValueError
        If two things have the same key.
    """

    def __init__(
        self, optimizers: Any, variables: Any, averages: Any, accumulators: Any = None
    ) -> None:
        self.optimizers: dict[str, Optimizer] = {}
        self.loss_scales: dict[str, LossScale] = {}
        self._depths: dict[str, int] = {}
        self.averages: dict[str, ExponentialMovingAverage] = dict(
            _keyed(averages, ExponentialMovingAverage, "averages", "name")
        )
        self.accumulators: dict[str, Accumulator] = dict(
            _keyed(accumulators, Accumulator, "accumulators", "name")
        )
        for key, optimizer in _keyed(optimizers, Optimizer, "optimizers", "get_name"):
            self._add_optimizer(key, optimizer, 0)
        self.variables = self._variables(variables)
        self._keys = {id(var): key for key, var in self.variables.items()}

    def _add_optimizer(self, key: str, optimizer: Optimizer, depth: int) -> None:
        if any(optimizer is known for known in self.optimizers.values()):
            return
        if key in self.optimizers:
            raise ValueError(f"optimizers: {key!r} is a part of another one; give other names")
        self.optimizers[key] = optimizer
        self._depths[key] = depth
        for attribute, value in vars(optimizer).items():
            part = f"{key}/{_PART_NAMES.get(attribute, attribute.lstrip('_'))}"
            if isinstance(value, Optimizer):
                self._add_optimizer(part, value, depth + 1)
            elif isinstance(value, LossScale):
                if not any(value is known for known in self.loss_scales.values()):
                    self.loss_scales[part] = value
            elif isinstance(value, ExponentialMovingAverage):
                if not any(value is known for known in self.averages.values()):
                    self.averages[part] = value

    @contextlib.contextmanager
    def locked(self) -> Iterator[contextlib.ExitStack]:
        """Hold the locks that optimizers with ``use_locking`` hold in a step.

        In one order, whoever takes them: an optimizer that is put around another one comes first.
        """
        order = sorted(
            self.optimizers.items(), key=lambda item: (self._depths[item[0]], id(item[1]))
        )
        with contextlib.ExitStack() as stack:
            for _, optimizer in order:
                stack.enter_context(optimizer._state_lock)
            yield stack

    def _variables(self, variables: Any) -> dict[str, Variable]:
        """Return the variables by key, without those that are the state of something else."""
        if isinstance(variables, Mapping):
            pairs = list(variables.items())
            for key, _ in pairs:
                if not isinstance(key, str) or not key:
                    raise TypeError(f"variables: a name must be a string, got {shown(key)}")
        else:
            if variables is None:
                variables = get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)
                variables += list(self._trained())
            elif isinstance(variables, Variable):
                variables = [variables]
            pairs = [(getattr(var, "name", None), var) for var in variables]
        state = {id(var) for var in self._owned()}
        named: dict[str, Variable] = {}
        for key, var in pairs:
            if not isinstance(var, Variable):
                raise TypeError(f"variables must be fastopt Variables, got {shown(var)}")
            if named.setdefault(key, var) is not var:
                raise ValueError(
                    f"two variables are named {key!r}, in different graphs; give them names with a "
                    'mapping: variables={"name": variable, ...}'
                )
        return {key: var for key, var in named.items() if id(var) not in state}

    def _trained(self) -> Iterator[Variable]:
        """Yield the variables that have slots or averages."""
        for optimizer in self.optimizers.values():
            for shelf in optimizer._slots.values():
                yield from shelf
        for average in self.averages.values():
            yield from average._shadows

    def _owned(self) -> Iterator[Variable]:
        """Yield the variables that are the state of something."""
        for optimizer in self.optimizers.values():
            for shelf in optimizer._slots.values():
                yield from shelf.values()
            yield from optimizer._non_slot_variables()
        for scale in self.loss_scales.values():
            yield from scale.variables()
        for average in self.averages.values():
            yield from average._shadows.values()
            for kept in average._functions.values():
                yield kept.shadow

    def key_of(self, var: Variable) -> str | None:
        """Return the key of a variable."""
        return self._keys.get(id(var))


def non_slots(optimizer: Optimizer) -> dict[str, Variable]:
    """Return the variables that belong to a whole optimizer, by the name that its rule uses.

    Raises
    ------
    ValueError
        If it has some of them once for each of several graphs.
    """
    found: dict[str, Variable] = {}
    for named in optimizer._non_slots.values():
        for name, var in named.items():
            if name in found:
                raise ValueError(
                    f"optimizer {optimizer.get_name()!r} trains variables of several graphs and "
                    f"has {name!r} for each; a checkpoint holds one"
                )
            found[name] = var
    return found


def scale_variables(scale: LossScale) -> dict[str, Variable]:
    """Return the variables of a loss scale by their names without what made them unique."""
    return {re.sub(r"_\d+$", "", var.name): var for var in scale.variables()}


def functions(average: ExponentialMovingAverage) -> dict[str, Any]:
    """Return the averages of functions, by the names of the functions.

    Raises
    ------
    ValueError
        If two functions have one name.
    """
    found: dict[str, Any] = {}
    for function, kept in average._functions.items():
        name = function_name(function)
        if name in found:
            raise ValueError(
                f"moving average {average.name!r}: two functions are named {name!r}, which a "
                "checkpoint could not tell apart; give them names with def"
            )
        found[name] = kept
    return found


def collecting(state: State) -> dict[str, tuple[OptimizerWrapper, Collected]]:
    """Return the optimizers that collect gradients, and what they have, by their keys."""
    found = {}
    for key, optimizer in state.optimizers.items():
        if isinstance(optimizer, OptimizerWrapper):
            collected = optimizer._collected_now()
            if collected is not None:
                found[key] = optimizer, collected
    return found


def _keyed(given: Any, kind: type, what: str, name: str) -> list[tuple[str, Any]]:
    """Return pairs of key and object, from one object, an iterable or a mapping."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        objects: Iterable[Any] = [given] if isinstance(given, kind) else given
        pairs = []
        for each in objects:
            own = getattr(each, name, None)
            pairs.append((own() if callable(own) else own, each))
    seen: dict[str, Any] = {}
    for key, each in pairs:
        if not isinstance(each, kind):
            raise TypeError(f"{what} must be of type {kind.__name__}, got {shown(each)}")
        if not isinstance(key, str) or not key:
            raise TypeError(f"{what}: a name must be a string, got {shown(key)}")
        if key in seen:
            raise ValueError(
                f"{what}: two are named {key!r}, and which is which would be a matter of order; "
                f'give them names with a mapping: {what}={{"name": ..., ...}}'
            )
        seen[key] = each
    return pairs
