"""`save`."""

from __future__ import annotations

import os
from typing import Any

from fastopt._sums import Collected
from fastopt.checkpoint import _file
from fastopt.checkpoint._document import (
    AverageRecord,
    BiasedRecord,
    CollectedRecord,
    Document,
    LossScaleRecord,
    OptimizerRecord,
    SumRecord,
    describe,
    require_json,
    versions,
)
from fastopt.checkpoint._state import (
    State,
    collecting,
    functions,
    non_slots,
    scale_variables,
)
from fastopt.global_step import get_global_step
from fastopt.moving_averages import ExponentialMovingAverage, debiasing_of
from fastopt.optimizer import Optimizer
from fastopt.variable import Variable


def save(
    path: str | os.PathLike[str],
    optimizers: Any = None,
    variables: Any = None,
    extra: Any = None,
    *,
    averages: Any = None,
    accumulators: Any = None,
    step: int | None = None,
) -> str:
    """Save variables and the state of optimizers to one file.

    The file is written beside `path`, brought to the disk and then renamed: whatever happens in
    between, there is the old file or the new one. It is in the safetensors format. Tensors have the
    names of their variables, slots those that TensorFlow gives them (``table/Adam``,
    ``table/Adam_1``); everything else is JSON in the metadata. Nothing is ever pickled.

    Parameters
    ----------
    path : str or path
        Where to.
    optimizers : Optimizer, iterable of Optimizer or mapping, optional
        Their slots, beta powers and the like are saved, and their hyperparameters for the record;
        also those of the optimizers, loss scales and averages inside of them. Several are told
        apart by their names, or by the keys of a mapping.
    variables : Variable, iterable of Variable or mapping, optional
        Default: all variables of the default graph, and those that have slots or averages. A
        mapping gives them other names.
    extra : object, optional
        Anything that is made of None, bools, numbers, strings, lists and dicts with strings as
        keys: the state of a random generator, the place in the data.
    averages : ExponentialMovingAverage, iterable of them or mapping, optional
        Their shadows are saved.
    accumulators : accumulator, iterable of them or mapping, optional
        `ConditionalAccumulator` and `SparseConditionalAccumulator`: what has been put in since the
        last take is saved. What optimizers have collected for a step that is not done yet is saved
        with them.
    step : int, optional
        For the record. Default: the value of the default graph's global step, if it has one.

    Returns
    -------
    str
        The path.

    Raises
    ------
    ImportError
        Without the safetensors library (``pip install "fastopt[checkpoint]"``).
    TypeError
        If something is not of the type its place is for.
    ValueError
        If two variables or optimizers have the same name.
    OSError
        If the file cannot be written. The old one is still there.

    Notes
    -----
    Save between steps. Optimizers with ``use_locking=True`` are locked meanwhile, so that a save
    from another thread is between steps too. Arrays are written from where they lie: saving needs
    no memory to speak of.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.ones((4, 2), np.float32), name="table")
    >>> opt = fo.AdagradOptimizer(0.1)
    >>> done = opt.apply_gradients([(np.ones((4, 2)), table)])
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = fo.checkpoint.save(f"{directory}/model.safetensors", opt, [table], {"epoch": 3})
    ...     saved = fo.checkpoint.open(path)
    ...     print(sorted(saved), saved.extra)
    ['table', 'table/Adagrad'] {'epoch': 3}
    """
    _file.require_safetensors()
    path = os.path.realpath(os.fspath(path))
    require_json(extra, "extra")
    state = State(optimizers, variables, averages, accumulators)
    with state.locked():
        document = Document(_step(step), versions(), extra=extra)
        arrays = _Tensors()
        for key, var in state.variables.items():
            arrays.add(key, var)
            document.variables.append(key)
            debiasing = debiasing_of(var)
            if debiasing is not None:
                document.debiased[key] = arrays.add_biased(key, debiasing)
        for key, optimizer in state.optimizers.items():
            document.optimizers[key] = _optimizer(optimizer, state, arrays)
        for key, scale in state.loss_scales.items():
            document.loss_scales[key] = LossScaleRecord(
                type(scale).__name__,
                {name: describe(value) for name, value in scale.get_config().items()},
                {role: arrays.add(var.name, var) for role, var in scale_variables(scale).items()},
                getattr(scale, "skipped_steps", 0),
            )
        for key, average in state.averages.items():
            document.averages[key] = _average(average, state, arrays)
        for key, (_, collected) in collecting(state).items():
            document.collected[key] = _collected(collected, state, arrays, key)
        for key, accumulator in state.accumulators.items():
            now = accumulator._collected_now()
            document.accumulators[key] = _collected(now, state, arrays, key)
        _file.write(path, arrays, document)
    return path


class _Tensors(dict[str, Any]):
    """What will be written."""

    def free(self, name: str) -> str:
        """Return the name, made unique."""
        unique, count = name, 0
        while unique in self:
            count += 1
            unique = f"{name}_{count}"
        return unique

    def add_biased(self, name: str, debiasing: tuple[Any, float]) -> BiasedRecord:
        """Add an average that began at 0, and return its record."""
        return BiasedRecord(self.add(f"{name}/biased", debiasing[0]), debiasing[1])

    def add(self, name: str, var: Variable | Any) -> str:
        """Add a variable, or an array, and return its name."""
        if name == "__metadata__":
            raise ValueError(
                f"the name {name!r} has a meaning of its own in the file; give another"
            )
        if name in self:
            raise ValueError(
                f"two tensors of the checkpoint would be named {name!r}; give variables other "
                'names with a mapping: variables={"name": variable, ...}'
            )
        self[name] = var.value if isinstance(var, Variable) else var
        return name


def _optimizer(optimizer: Optimizer, state: State, arrays: _Tensors) -> OptimizerRecord:
    record = OptimizerRecord(
        type(optimizer).__name__,
        {name: describe(value) for name, value in hyperparameters(optimizer).items()},
    )
    for slot_name, shelf in optimizer._slots.items():
        named = record.slots[slot_name] = {}
        for var, slot in shelf.items():
            key = state.key_of(var)
            if key is not None:
                named[key] = arrays.add(_renamed(slot, var, key), slot)
    for name, var in non_slots(optimizer).items():
        record.non_slots[name] = arrays.add(var.name, var)
    for name, waiting in optimizer._restorable.items():
        if name not in record.non_slots:
            record.non_slots[name] = arrays.add(arrays.free(name), waiting)
    return record


def _average(average: ExponentialMovingAverage, state: State, arrays: _Tensors) -> AverageRecord:
    record = AverageRecord()
    for var, shadow in average._shadows.items():
        key = state.key_of(var)
        if key is not None:
            record.shadows[key] = arrays.add(_renamed(shadow, var, key), shadow)
    known = {name: (kept.biased, kept.weight) for name, kept in functions(average).items()}
    for name, debiasing in (average._waiting | known).items():
        record.functions[name] = arrays.add_biased(f"{name}/{average.name}", debiasing)
    return record


def _collected(collected: Collected, state: State, arrays: _Tensors, key: str) -> CollectedRecord:
    record = CollectedRecord(collected.count, collected.step, numbers=collected.numbers)
    for owner, total in collected.sums:
        name = prefix = key
        if isinstance(owner, Variable):
            of_var = state.key_of(owner)
            if of_var is None:
                raise ValueError(
                    f"optimizer {key!r} has collected gradients of {owner.name!r}, which is not"
                    " among the variables to be saved"
                )
            name, prefix = of_var, f"{of_var}/{key}"
        record.sums[name] = SumRecord(total.dtype)
        for part, array in total.arrays.items():
            tensor = arrays.add(arrays.free(f"{prefix}/collected_{part}"), array)
            record.sums[name].tensors[part] = tensor
    return record


def hyperparameters(optimizer: Optimizer) -> dict[str, Any]:
    """Return the hyperparameters of an optimizer, as far as it has a table of them."""
    found = dict(getattr(optimizer, "_hyperparameters", {}))
    for var, own in getattr(optimizer, "_own", {}).items():
        found.update((f"{name} of {var.name!r}", value) for name, value in own.items())
    return found


def _renamed(made: Variable, var: Variable, key: str) -> str:
    """Return the name of what was made for a variable, if that is saved under another name."""
    return key + made.name[len(var.name) :] if made.name.startswith(var.name) else made.name


def _step(step: int | None) -> int | None:
    if step is not None:
        if isinstance(step, bool) or not hasattr(step, "__index__"):
            raise TypeError(f"step must be an int, got {step!r}")
        return step.__index__()
    try:
        counter = get_global_step()
    except (TypeError, ValueError):  # several, or something else of that name
        return None
    return None if counter is None else int(counter.value)
