"""What a restore would change, and what is wrong: found out first, then carried out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastopt._pairs import require_storage
from fastopt._sums import Collected, SumState
from fastopt.accumulators import Accumulator
from fastopt.checkpoint._collected import read_sum
from fastopt.checkpoint._document import (
    AverageRecord,
    BiasedRecord,
    CollectedRecord,
    Document,
    LossScaleRecord,
    OptimizerRecord,
    SumRecord,
    describe,
)
from fastopt.checkpoint._file import TensorFile
from fastopt.checkpoint._initial import Initial
from fastopt.checkpoint._save import hyperparameters
from fastopt.checkpoint._state import State, collecting, functions, non_slots, scale_variables
from fastopt.loss_scale import LossScale
from fastopt.moving_averages import ExponentialMovingAverage, set_debiasing
from fastopt.optimizer import Optimizer
from fastopt.variable import Variable
from fastopt.wrapper import OptimizerWrapper

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Restored:
    """What `restore` has done.

    Attributes
    ----------
    path : str
        The file.
    step : int or None
        The step at which it was saved.
    extra : object
        What the caller of `save` wanted to keep.
    variables : tuple of str
        The variables that were restored.
    state : tuple of str
        The tensors from which the state of optimizers, loss scales and averages was restored.
    deferred : tuple of str
        Those that wait for an optimizer to make the variable they are for, in its first step.
    missing : tuple of str
        What the file should have held and didn't. Not empty only if ``strict=False``.
    unexpected : tuple of str
        What it held and nobody had asked for. Not empty only if ``strict=False``.
    reset : tuple of str
        State that is missing in the file and was set to its initial value.
    changed : dict
        Hyperparameters that are other ones now, ``{"Adam.learning_rate": (saved, now)}``. They are
        the program's, and restoring leaves them alone.
    """

    path: str
    step: int | None
    extra: Any
    variables: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reset:
    """A slot, or a variable of a whole optimizer, that is to get its initial value."""

    what: str
    target: Variable
    optimizer: Optimizer
    name: str
    var: Variable | None  # whose slot it is

    def carry_out(self, initial: Initial) -> None:
        """Set it."""
        values = initial.non_slots if self.var is None else initial.slots
        if self.name in values:
            self.target.assign(values[self.name])


class Plan:
    """What will be changed, and what is wrong."""

    def __init__(self, file: TensorFile, state: State, strict: bool) -> None:
        self.file = file
        self.state = state
        self.strict = strict
        # A file of somebody else's has tensors and no more.
        self.document = file.document or Document(variables=list(file.entries))
        self.assignments: list[tuple[Variable, str]] = []
        self.waiting: list[tuple[Optimizer, str, str]] = []
        self.resets: list[Reset] = []
        self.skipped_steps: list[tuple[LossScale, int]] = []
        self.shadows: list[tuple[ExponentialMovingAverage, Variable, str]] = []
        self.debiased: list[tuple[Variable, BiasedRecord | None]] = []
        self.function_averages: list[tuple[ExponentialMovingAverage, str, BiasedRecord]] = []
        self.new_shadows: list[tuple[str, ExponentialMovingAverage, Variable]] = []
        self.collected_tensors: list[str] = []
        self.collections: list[tuple[OptimizerWrapper | Accumulator, Collected]] = []
        self.restored: dict[str, None] = {}
        self.missing: list[str] = []
        self.claimed: set[str] = set()
        self.wrong: list[str] = []
        self.changed: dict[str, tuple[Any, Any]] = {}

    # ------------------------------------------------------------------ what is to be done

    def variables(self) -> None:
        """Plan the variables."""
        in_file = set(self.document.variables)
        for key, var in self.state.variables.items():
            if key in in_file and self._assign(f"variable {key!r}", var, key):
                self.restored[key] = None
                record = self.document.debiased.get(key)
                if record is None or self._fits(
                    f"biased average of {key!r}", record.tensor, var.shape, var.dtype
                ):
                    self.debiased.append((var, record))
            elif key not in in_file:
                role = self._role_of(key)
                self.missing.append(f"variable {key!r}" + (f" ({role})" if role else ""))

    @contextlib.contextmanager
    def making_slots(self) -> Iterator[None]:
        """Make the slots that the file has values for, and take them away again after an error."""
        with contextlib.ExitStack() as stack:
            for key, optimizer in self.state.optimizers.items():
                record = self.document.optimizers.get(key)
                keys = {name for named in record.slots.values() for name in named} if record else ()
                trained = [self.state.variables[k] for k in self.state.variables if k in keys]
                if not trained:
                    continue
                stack.callback(optimizer._call.forget)
                # For hyperparameters that are functions of the step.
                optimizer._call.step = self.document.step or 0
                optimizer._require_updatable(trained)
                require_storage(trained)
                for graph in dict.fromkeys(var.graph for var in trained):
                    these = [var for var in trained if var.graph is graph]
                    stack.enter_context(optimizer._creating(these))
                    optimizer._create_slots(these)
            yield

    def optimizers(self) -> None:
        """Plan the slots and the other variables of optimizers."""
        for key, optimizer in self.state.optimizers.items():
            record = self.document.optimizers.get(key)
            if record is None:
                self.missing.append(f"optimizer {key!r}")
                record = OptimizerRecord(type(optimizer).__name__)
            self._compare(key, optimizer, record, hyperparameters(optimizer))
            left_alone = False
            for slot_name, shelf in optimizer._slots.items():
                saved = record.slots.get(slot_name, {})
                for var, slot in shelf.items():
                    name = self.state.key_of(var)
                    what = f"slot {slot_name!r} of {var.name!r} (optimizer {key!r})"
                    if name in saved:
                        self._assign(what, slot, saved[name])
                    elif name is not None:
                        self.missing.append(what)
                    if name is None or name not in self.restored:
                        left_alone = True
                    elif name not in saved or saved[name] not in self.file.entries:
                        self.resets.append(Reset(what, slot, optimizer, slot_name, var))
            made = non_slots(optimizer)
            for name, non_slot in made.items():
                what = f"{name!r} (optimizer {key!r})"
                if name in record.non_slots:
                    self._assign(what, non_slot, record.non_slots[name])
                else:
                    self.missing.append(what)
                if record.non_slots.get(name) not in self.file.entries and not left_alone:
                    self.resets.append(Reset(what, non_slot, optimizer, name, None))
            for name, tensor in record.non_slots.items():
                if name not in made:
                    self._wait(f"{name!r} (optimizer {key!r})", optimizer, name, tensor)

    def loss_scales(self) -> None:
        """Plan the loss scales."""
        for key, scale in self.state.loss_scales.items():
            record = self.document.loss_scales.get(key)
            if record is None:
                self.missing.append(f"loss scale {key!r}")
                continue
            self._compare(key, scale, record, scale.get_config())
            for role, var in scale_variables(scale).items():
                if role in record.variables:
                    self._assign(f"{role!r} (loss scale {key!r})", var, record.variables[role])
                else:
                    self.missing.append(f"{role!r} (loss scale {key!r})")
            if hasattr(scale, "skipped_steps"):
                self.skipped_steps.append((scale, record.skipped_steps))

    def averages(self) -> None:
        """Plan the shadows of moving averages."""
        for key, average in self.state.averages.items():
            record = self.document.averages.get(key)
            if record is None:
                self.missing.append(f"moving average {key!r}")
                record = AverageRecord()
            for var in average._shadows:
                name = self.state.key_of(var)
                what = f"shadow of {name!r} (moving average {key!r})"
                if name is not None and name not in record.shadows:
                    self.missing.append(what)
                if name in self.restored and record.shadows.get(name) not in self.file.entries:
                    self.new_shadows.append((what, average, var))
            for name, tensor in record.shadows.items():
                if name in self.state.variables:
                    var = self.state.variables[name]
                    what = f"shadow of {name!r} (moving average {key!r})"
                    if self._fits(what, tensor, var.shape, var.dtype):
                        self.shadows.append((average, var, tensor))
            known = functions(average)
            for name, biased in record.functions.items():
                if biased.tensor not in self.file.entries:
                    self.missing.append(f"average of {name} (moving average {key!r})")
                    continue
                self.claimed.add(biased.tensor)
                if name in known:
                    array, what = known[name].biased, f"average of {name}"
                    if not self._fits(what, biased.tensor, array.shape, array.dtype):
                        continue
                self.function_averages.append((average, name, biased))

    def collected(self) -> None:
        """Plan what optimizers have collected for a step that is not done yet."""
        for key, (optimizer, _) in collecting(self.state).items():
            record = self.document.collected.get(key)
            if record is None:
                self.missing.append(f"what optimizer {key!r} has collected")
                record = CollectedRecord()
            sums: list[tuple[Any, SumState]] = []
            for name, one in record.sums.items():
                var = self.state.variables.get(name)
                what = f"collected gradients of {name!r} (optimizer {key!r})"
                if var is None:
                    self.missing.append(f"variable {name!r}, for {what}")
                elif (total := self._sum(what, one, var.shape)) is not None:
                    sums.append((var, total))
            whole = len(sums) == len(record.sums)
            self._collect(optimizer, record, sums if whole else [], whole)

    def accumulators(self) -> None:
        """Plan what has been put into accumulators."""
        for key, accumulator in self.state.accumulators.items():
            record = self.document.accumulators.get(key)
            if record is None:
                self.missing.append(f"accumulator {key!r}")
                continue
            sums: list[tuple[Any, SumState]] = []
            for one in record.sums.values():
                total = self._sum(f"accumulator {key!r}", one, accumulator._declared)
                if total is not None:
                    problem = accumulator._misfit(total)
                    if problem:
                        self.wrong.append(f"accumulator {key!r} {problem}")
                    sums.append((accumulator, total))
            self._collect(accumulator, record, sums, len(sums) == len(record.sums))

    # ------------------------------------------------------------------ parts of that

    def _sum(
        self, what: str, record: SumRecord, shape: tuple[int | None, ...] | None
    ) -> SumState | None:
        absent = [t for t in record.tensors.values() if t not in self.file.entries]
        self.claimed.update(record.tensors.values())
        if absent:
            self.missing.append(f"{what}, tensors {', '.join(map(repr, absent))}")
            return None
        try:
            total = read_sum(self.file, record, shape)
            self.collected_tensors += record.tensors.values()
            return total
        except ValueError as error:
            self.wrong.append(f"{what}: {error}")
            return None

    def _collect(
        self,
        owner: OptimizerWrapper | Accumulator,
        record: CollectedRecord,
        sums: list[tuple[Any, SumState]],
        whole: bool,
    ) -> None:
        """Plan that something goes on from a record; from nothing if that is not whole."""
        count = record.count if whole else 0
        self.collections.append((owner, Collected(count, record.step, sums, record.numbers)))

    def _assign(self, what: str, var: Variable, tensor: str) -> bool:
        if not self._fits(what, tensor, var.shape, var.dtype):
            return False
        if not var._storage.flags.writeable:
            self.wrong.append(f"{what} is read-only")
        self.assignments.append((var, tensor))
        return True

    def _wait(self, what: str, optimizer: Optimizer, name: str, tensor: str) -> None:
        entry = self.file.entries.get(tensor)
        if entry is None:
            self.missing.append(what)
        else:
            self.claimed.add(tensor)
            self.waiting.append((optimizer, name, tensor))

    def _fits(self, what: str, tensor: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        entry = self.file.entries.get(tensor)
        if entry is None:
            self.missing.append(f"{what}, tensor {tensor!r}")
            return False
        self.claimed.add(tensor)
        if entry.shape != shape:
            self.wrong.append(f"{what} has shape {entry.shape} in the file, {shape} here")
        elif entry.dtype != dtype:
            self.wrong.append(f"{what} has dtype {entry.dtype} in the file, {dtype} here")
        else:
            return True
        return False

    def _compare(
        self,
        key: str,
        owner: Any,
        record: OptimizerRecord | LossScaleRecord,
        now: dict[str, Any],
    ) -> None:
        name = type(owner).__name__
        if record.cls != name and self.strict:
            self.wrong.append(f"{key!r} is of class {record.cls} in the file, {name} here")
        for argument, value in now.items():
            if argument in record.hyperparameters:
                pair = record.hyperparameters[argument], describe(value)
                if pair[0] != pair[1]:
                    self.changed[f"{key}.{argument}"] = pair

    def _role_of(self, tensor: str) -> str:
        """Say whose state a tensor is in the file, if it is no variable there."""
        for key, record in self.document.optimizers.items():
            for slot_name, named in record.slots.items():
                for name, slot in named.items():
                    if slot == tensor:
                        return f"in the file it is {slot_name!r} of {name!r}, optimizer {key!r}"
            if tensor in record.non_slots.values():
                return f"in the file it belongs to optimizer {key!r}"
        return ""

    # ------------------------------------------------------------------ whether, and then how

    def require_fit(self, optimizers: bool, averages: bool, accumulators: bool) -> None:
        """Raise if something is wrong; if strict, also if something is missing or unexpected."""
        left_out: set[str] = set()
        if not optimizers:
            left_out.update(_tensors_of_optimizers(self.document))
        if not averages:
            left_out.update(_tensors_of_averages(self.document))
        if not accumulators:
            left_out.update(_tensors_collected(self.document.accumulators))
        self.unexpected = [
            name for name in self.file.entries if name not in self.claimed and name not in left_out
        ]
        problems = [("of another kind", self.wrong)]
        if self.strict:
            problems += [("missing", self.missing), ("unexpected", self.unexpected)]
        if any(found for _, found in problems):
            listed = "; ".join(f"{kind}: {', '.join(found)}" for kind, found in problems if found)
            hint = "" if self.wrong else ". With strict=False, the rest is restored"
            raise ValueError(f"{self.file.path} doesn't fit. {listed}{hint}")

    def carry_out(self) -> None:
        """Change everything."""
        if not self.strict:
            self._reset()
        for var, tensor in self.assignments:
            var.assign(self.file.array(tensor))
        for average, var, tensor in self.shadows:
            average._shadow(var).restore(self.file.array(tensor))
        if not self.strict:
            for _, average, var in self.new_shadows:
                average._shadow(var).restore(var.value)
        for var, record in self.debiased:
            state = None if record is None else self._biased(record)
            set_debiasing(var, state)
        for average, name, biased in self.function_averages:
            kept = functions(average).get(name)
            if kept is None:
                average._waiting[name] = self._biased(biased)
            else:
                kept.restore(*self._biased(biased), average._zero_debias)
        for optimizer, name, tensor in self.waiting:
            optimizer._restorable[name] = self.file.array(tensor).copy()
        for owner, collected in self.collections:
            owner._set_collected(collected)
        for scale, skipped in self.skipped_steps:
            scale.skipped_steps = skipped  # type: ignore[attr-defined]

    def _reset(self) -> None:
        """Give the initial value to state that the file lacks."""
        for optimizer in {id(reset.optimizer): reset.optimizer for reset in self.resets}.values():
            resets = [reset for reset in self.resets if reset.optimizer is optimizer]
            owners = {id(reset.var): reset.var for reset in resets}
            for var in owners.values():
                some = var if var is not None else _any_trained(optimizer)
                if some is not None:
                    initial = Initial(optimizer, some, self.document.step)
                    for reset in resets:
                        if reset.var is var:
                            reset.carry_out(initial)

    def _biased(self, record: BiasedRecord) -> tuple[Array, float]:
        return self.file.array(record.tensor).copy(), record.weight

    def report(self) -> Restored:
        """Say what was done."""
        deferred = [tensor for _, _, tensor in self.waiting]
        others = [tensor for _, _, tensor in self.shadows]
        others += [record.tensor for _, record in self.debiased if record is not None]
        others += self.collected_tensors
        for average, name, record in self.function_averages:
            (deferred if name in average._waiting else others).append(record.tensor)
        reset = [each.what for each in self.resets] + [what for what, _, _ in self.new_shadows]
        own = {*self.restored, *deferred}
        return Restored(
            path=self.file.path,
            step=self.document.step,
            extra=self.document.extra,
            variables=tuple(self.restored),
            state=(*(name for _, name in self.assignments if name not in own), *others),
            deferred=tuple(deferred),
            missing=tuple(self.missing),
            unexpected=tuple(self.unexpected),
            reset=() if self.strict else tuple(reset),
            changed=self.changed,
        )


def _tensors_of_optimizers(document: Document) -> Iterable[str]:
    for record in document.optimizers.values():
        for named in record.slots.values():
            yield from named.values()
        yield from record.non_slots.values()
    for scale in document.loss_scales.values():
        yield from scale.variables.values()
    yield from _tensors_collected(document.collected)


def _tensors_collected(records: dict[str, CollectedRecord]) -> Iterable[str]:
    for record in records.values():
        for total in record.sums.values():
            yield from total.tensors.values()


def _tensors_of_averages(document: Document) -> Iterable[str]:
    for record in document.averages.values():
        yield from record.shadows.values()
        yield from (biased.tensor for biased in record.functions.values())


def _any_trained(optimizer: Optimizer) -> Variable | None:
    """Return the smallest variable that has slots."""
    found = [var for shelf in optimizer._slots.values() for var in shelf]
    return min(found, key=lambda var: var.size, default=None)
