"""Hyperparameters of all optimizers: what they may be, and when they are read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels.rules import RULES
from fastopt._validate import Real
from tests.optimizer_db import (
    BY_ID,
    Record,
    bad_arguments,
    bad_numbers,
    every_record,
    every_variant,
    state_of,
)


@pytest.mark.parametrize(("record", "name", "value", "error"), list(bad_arguments()))
def test_a_bad_argument_is_refused(
    record: Record, name: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=rf"^{record.cls.__name__}: {name} must be "):
        record.make(**{name: value})


@every_record()
def test_the_table_names_the_arguments_of_the_constructor(record: Record) -> None:
    arguments = set(inspect.signature(record.cls).parameters)
    arguments -= {"use_locking", "name", "loss_scale"}
    assert set(record.cls._constraints) == arguments


@every_record()
@pytest.mark.parametrize("name", [None, ""])
def test_a_name_is_required(record: Record, name: Any) -> None:
    with pytest.raises(ValueError, match="optimizer name"):
        record.make(name=name)


def wrapped(kind: str, value: float) -> Any:
    if kind == "callable":
        return lambda: value
    if kind == "variable":
        return fo.Variable(np.float64(value), trainable=False)
    if kind == "array":
        return np.array(value)
    if kind == "tensor":
        return fo.Tensor(value)
    return np.float64(value)


def train(optimizer: Any) -> list[bytes]:
    rng = np.random.default_rng(3)
    with fo.Graph().as_default():
        dense = fo.Variable(rng.normal(size=5), name="dense")
        table = fo.Variable(rng.normal(size=(6, 2)).astype(np.float32), name="table")
        for _ in range(3):
            slices = fo.IndexedSlices(rng.normal(size=(3, 2)).astype(np.float32), [4, 0, 4])
            optimizer.apply_gradients([(rng.normal(size=5), dense), (slices, table)])
    return [dense.numpy().tobytes(), table.numpy().tobytes()]


@every_variant()
@pytest.mark.parametrize("kind", ["callable", "variable", "array", "tensor", "numpy"])
def test_every_kind_of_value_means_the_same(
    record: Record, kwargs: dict[str, Any], kind: str
) -> None:
    given = {
        name: wrapped(kind, value)
        if isinstance(constraint := record.cls._constraints[name], Real) and not constraint.fixed
        else value
        for name, value in kwargs.items()
    }
    assert train(record.cls(**given)) == train(record.cls(**kwargs))


@every_record()
def test_a_callable_is_called_once_a_step_and_after_the_slots(record: Record) -> None:
    calls: list[list[str]] = []

    def rate() -> float:
        calls.append(optimizer.get_slot_names())
        return 0.5

    var = fo.Variable(np.ones(3))
    optimizer = record.make(learning_rate=rate)
    for _ in range(3):
        optimizer.apply_gradients([(np.ones(3), var)])
    assert calls == [sorted(record.slots)] * 3


@every_record()
def test_a_rate_is_what_it_is_at_the_step(record: Record) -> None:
    rates = [0.5, 0.25, 0.125]
    rate = fo.Variable(0.0, trainable=False)
    values = iter(rates)
    var, other = fo.Variable(np.ones(3)), fo.Variable(np.ones(3))
    by_variable, by_callable = (
        record.make(learning_rate=rate),
        record.make(learning_rate=lambda: next(values)),
    )
    for value in rates:
        rate.assign(value)
        by_variable.apply_gradients([(np.ones(3), var)])
        by_callable.apply_gradients([(np.ones(3), other)])
    assert var.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize(("record", "name", "value"), list(bad_numbers()))
@pytest.mark.parametrize("kind", ["callable", "variable", "array"])
@pytest.mark.parametrize("first", [True, False], ids=["first step", "later step"])
def test_a_bad_number_at_a_step_changes_nothing(
    record: Record, name: str, value: float, kind: str, first: bool
) -> None:
    constraint = record.cls._constraints[name]
    assert isinstance(constraint, Real)
    good = next(x for x in (0.5, -0.5) if constraint.holds(x))
    now = [good]
    holder: Any = (lambda: now[0]) if kind == "callable" else wrapped(kind, good)

    def become(number: float) -> None:
        now[0] = number
        if kind == "variable":
            holder.assign(number)
        elif kind == "array":
            holder[()] = number

    var = fo.Variable(np.ones(3), name="var")
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = record.make(**{name: holder})
    if not first:
        optimizer.apply_gradients([(np.ones(3), var)], global_step=step)
    before = state_of(optimizer, var, step)
    become(value)
    with pytest.raises(ValueError, match=rf"^{record.cls.__name__}: {name}(\(\))? must be "):
        optimizer.apply_gradients([(np.ones(3), var)], global_step=step)
    assert state_of(optimizer, var, step) == before
    become(good)
    optimizer.apply_gradients([(np.ones(3), var)], global_step=step)
    assert step.numpy() == 2 - first


@every_record()
def test_what_a_callable_raises_comes_through_and_changes_nothing(record: Record) -> None:
    def broken() -> float:
        raise LookupError("mine")

    var = fo.Variable(np.ones(3), name="var")
    optimizer = record.make(learning_rate=broken)
    before = state_of(optimizer, var)
    with pytest.raises(LookupError, match="mine"):
        optimizer.apply_gradients([(np.ones(3), var)])
    assert state_of(optimizer, var) == before


def test_a_failed_first_step_leaves_the_names_free() -> None:
    divisors = iter([0.0, 10.0])

    def rate() -> float:
        return 1.0 / next(divisors)

    with fo.Graph().as_default() as graph:
        var = fo.Variable(np.ones(3), name="v")
        optimizer = fo.AdamOptimizer(learning_rate=rate)
        with pytest.raises(ZeroDivisionError):
            optimizer.apply_gradients([(np.ones(3), var)])
        assert [v.name for v in graph.get_collection(fo.GraphKeys.GLOBAL_VARIABLES)] == ["v"]
        optimizer.apply_gradients([(np.ones(3), var)])
        names = [v.name for v in optimizer.variables()]
    assert names == ["beta1_power", "beta2_power", "v/Adam", "v/Adam_1"]


def test_powers_start_at_what_a_callable_gives_then() -> None:
    calls: list[float] = []

    def counted(value: float) -> Callable[[], float]:
        def read() -> float:
            calls.append(value)
            return value

        return read

    var = fo.Variable(np.ones(2))
    optimizer = fo.AdamOptimizer(beta1=counted(0.5), beta2=counted(0.75))
    optimizer.apply_gradients([(np.ones(2), var)])
    assert calls == [0.5, 0.75, 0.5, 0.75]  # once for the powers, once for the step
    powers = [optimizer._get_non_slot_variable(f"beta{k}_power").numpy() for k in (1, 2)]
    assert powers == [0.25, 0.5625]


def test_a_schedule_sees_the_step_before_it_is_counted() -> None:
    step = fo.Variable(np.int64(0), trainable=False)
    seen: list[int] = []

    def rate() -> float:
        seen.append(int(step))
        return 0.1

    var = fo.Variable(np.ones(2))
    optimizer = fo.GradientDescentOptimizer(rate)
    for _ in range(3):
        optimizer.apply_gradients([(np.ones(2), var)], global_step=step)
    assert seen == [0, 1, 2]


def test_the_power_of_ftrl_may_be_a_variable() -> None:
    power = fo.Variable(np.float64(-0.5), trainable=False)
    var, other = fo.Variable(np.ones(3)), fo.Variable(np.ones(3))
    varying = fo.FtrlOptimizer(0.5, learning_rate_power=power)
    fixed = fo.FtrlOptimizer(0.5, learning_rate_power=-0.5)
    for optimizer, v in ((varying, var), (fixed, other)):
        optimizer.apply_gradients([(np.full(3, 0.25), v)])
    np.testing.assert_allclose(var.numpy(), other.numpy(), rtol=1e-14)
    power.assign(-0.25)
    varying.apply_gradients([(np.full(3, 0.25), var)])
    fixed.apply_gradients([(np.full(3, 0.25), other)])
    assert not np.allclose(var.numpy(), other.numpy(), rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_initial_value_that_vanishes_in_the_dtype_is_refused(dtype: Any) -> None:
    tiny = {np.float32: 1e-60, np.float64: 5e-324}[dtype]
    var = fo.Variable(np.ones(3, dtype), name="var")
    optimizer = fo.AdagradOptimizer(0.1, initial_accumulator_value=tiny)
    if dtype is np.float64:  # still a number there
        optimizer.apply_gradients([(np.zeros(3), var)])
        assert (var.numpy() == 1).all()
        return
    before = state_of(optimizer, var)
    with pytest.raises(ValueError, match=r"initial_accumulator_value 1e-60 .* float32.*'var'"):
        optimizer.apply_gradients([(np.zeros(3), var)])
    assert state_of(optimizer, var) == before


def test_an_initial_value_beyond_the_dtype_is_refused() -> None:
    var = fo.Variable(np.ones(3, np.float32), name="var")
    for optimizer in (
        fo.AdagradOptimizer(0.1, initial_accumulator_value=1e60),
        fo.FtrlOptimizer(0.1, initial_accumulator_value=1e60),
    ):
        with pytest.raises(ValueError, match=r"1e\+60 is .*inf.* in float32"):
            optimizer.apply_gradients([(np.zeros(3), var)])


# What is not finite in float32, also times 0.1. Of a rate that only divides the inverse is 0.
BEYOND = [
    pytest.param(record, name, id=f"{record.id}-{name}")
    for record in BY_ID.values()
    for name, constraint in record.cls._constraints.items()
    if isinstance(constraint, Real) and not constraint.fixed and constraint.holds(1e60)
    if not (name == "learning_rate" and "inv_lr" in RULES[record.make()._rule_name].scalars)
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("first", [True, False], ids=["first step", "later step"])
@pytest.mark.parametrize(("record", "name"), BEYOND)
def test_a_number_beyond_float32_changes_nothing(
    record: Record, name: str, first: bool, dtype: str
) -> None:
    now = [0.5]
    var = fo.Variable(np.ones(3, np.dtype(dtype)), name="var")
    wide = fo.Variable(np.ones(3), name="wide")
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = record.make(**{name: lambda: now[0]})
    pairs = [(np.ones(3), wide), (np.ones(3, np.float32), var)]
    if not first:
        optimizer.apply_gradients(pairs, global_step=step)
    before = state_of(optimizer, wide, var, step)
    now[0] = 1e60
    text = rf"^{record.cls.__name__}: {name} 1e\+60 is not finite in float32, .*'var'"
    with pytest.raises(ValueError, match=text):
        optimizer.apply_gradients(pairs, global_step=step)
    assert state_of(optimizer, wide, var, step) == before
    optimizer.apply_gradients(pairs[:1], global_step=step)  # in float64 it is a number
    assert int(step) == 2 - first


def narrow() -> fo.Variable:
    return fo.Variable(np.ones(3, np.float32), name="narrow")


@pytest.mark.parametrize("kind", ["number", "callable"])
def test_a_setting_of_one_variable_beyond_float32_changes_nothing(kind: str) -> None:
    value: Any = 1e60 if kind == "number" else lambda: 1e60
    var, other = narrow(), fo.Variable(np.ones(3, np.float32), name="other")
    optimizer = fo.MomentumOptimizer(0.5, 0.9)
    for _ in range(2):  # the first step, and a later one
        optimizer.configure(var, learning_rate=value)
        before = state_of(optimizer, var, other)
        with pytest.raises(ValueError, match=r"learning_rate .*not finite in float32, .*'narrow'"):
            optimizer.apply_gradients([(np.ones(3), other), (np.ones(3), var)])
        assert state_of(optimizer, var, other) == before
        optimizer.apply_gradients([(np.ones(3), other)])  # not a matter of this call
        optimizer.configure(var, learning_rate=0.5)
        optimizer.apply_gradients([(np.ones(3), other), (np.ones(3), var)])


def test_what_is_made_of_numbers_may_be_beyond_float32_too() -> None:
    var = narrow()
    text = r"FtrlOptimizer: inv_lr 1e\+40, made of .*learning_rate 1e-40, .*'narrow'"
    with pytest.raises(ValueError, match=text):
        fo.FtrlOptimizer(1e-40).apply_gradients([(np.ones(3), var)])
    with pytest.raises(ValueError, match="inv_lr inf, .*not finite in float64"):
        fo.FtrlOptimizer(5e-324).apply_gradients([(np.ones(3), fo.Variable(np.ones(3)))])
    assert (var.numpy() == 1).all()


@pytest.mark.parametrize("first", [True, False], ids=["first step", "later step"])
def test_a_decay_beyond_float32_changes_nothing(first: bool) -> None:
    now = [0.0]
    var = narrow()
    optimizer = fo.decouple(fo.MomentumOptimizer(0.5, 0.9), lambda: now[0])
    if not first:
        optimizer.apply_gradients([(np.ones(3), var)])
    before = state_of(optimizer, var)
    now[0] = 1e60
    with pytest.raises(ValueError, match=r"weight_decay 1e\+60 is not finite .*'narrow'"):
        optimizer.apply_gradients([(np.ones(3), var)])
    assert state_of(optimizer, var) == before


def test_hooks_of_others_are_not_called_with_a_number_beyond_float32() -> None:
    class Heard(fo.MomentumOptimizer):
        def _apply_dense(self, grad: Any, var: Any) -> Any:
            return super()._apply_dense(grad, var)

    now = [0.5]
    var, wide = narrow(), fo.Variable(np.ones(3), name="wide")
    optimizer = Heard(lambda: now[0], 0.9)
    for _ in range(2):
        before = state_of(optimizer, var, wide)
        now[0] = 1e60
        with pytest.raises(ValueError, match="'narrow'"):
            optimizer.apply_gradients([(np.ones(3), wide), (np.ones(3), var)])
        assert state_of(optimizer, var, wide) == before
        now[0] = 0.5
        optimizer.apply_gradients([(np.ones(3), wide), (np.ones(3), var)])


def test_without_gates_nothing_is_updated_by_a_number_beyond_float32() -> None:
    now = [0.5]
    var, wide = narrow(), fo.Variable(np.ones(3), name="wide")
    optimizer = fo.MomentumOptimizer(lambda: now[0], 0.9)
    loss = lambda: np.sum(var * wide)  # noqa: E731
    for _ in range(2):
        before = state_of(optimizer, var, wide)
        now[0] = 1e60
        with pytest.raises(ValueError, match="'narrow'"):
            optimizer.minimize(loss, gate_gradients=optimizer.GATE_NONE)
        assert state_of(optimizer, var, wide) == before
        now[0] = 0.5
        optimizer.minimize(loss, gate_gradients=optimizer.GATE_NONE)


def test_signatures_are_tensorflows() -> None:
    needed = inspect.Parameter.empty
    adam = {
        "learning_rate": 0.001,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "use_locking": False,
        "name": "Adam",
    }
    penalties = {
        "l1_regularization_strength": 0.0,
        "l2_regularization_strength": 0.0,
        "use_locking": False,
    }
    expected = {
        "GradientDescent": {
            "learning_rate": needed,
            "use_locking": False,
            "name": "GradientDescent",
        },
        "Momentum": {
            "learning_rate": needed,
            "momentum": needed,
            "use_locking": False,
            "name": "Momentum",
            "use_nesterov": False,
        },
        "Adagrad": {
            "learning_rate": needed,
            "initial_accumulator_value": 0.1,
            "use_locking": False,
            "name": "Adagrad",
        },
        "Adam": adam,
        "LazyAdam": adam,
        "Ftrl": {
            "learning_rate": needed,
            "learning_rate_power": -0.5,
            "initial_accumulator_value": 0.1,
            "l1_regularization_strength": 0.0,
            "l2_regularization_strength": 0.0,
            "use_locking": False,
            "name": "Ftrl",
            "accum_name": None,
            "linear_name": None,
            "l2_shrinkage_regularization_strength": 0.0,
            "beta": None,
        },
        "RMSProp": {
            "learning_rate": needed,
            "decay": 0.9,
            "momentum": 0.0,
            "epsilon": 1e-10,
            "use_locking": False,
            "centered": False,
            "name": "RMSProp",
        },
        "Adadelta": {
            "learning_rate": 0.001,
            "rho": 0.95,
            "epsilon": 1e-8,
            "use_locking": False,
            "name": "Adadelta",
        },
        "AdagradDA": {
            "learning_rate": needed,
            "global_step": needed,
            "initial_gradient_squared_accumulator_value": 0.1,
            **penalties,
            "name": "AdagradDA",
        },
        "ProximalGradientDescent": {
            "learning_rate": needed,
            **penalties,
            "name": "ProximalGradientDescent",
        },
        "ProximalAdagrad": {
            "learning_rate": needed,
            "initial_accumulator_value": 0.1,
            **penalties,
            "name": "ProximalAdagrad",
        },
    }
    for name, arguments in expected.items():
        parameters = inspect.signature(BY_ID[name].cls).parameters.values()
        ours = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        found = [p for p in parameters if p not in ours]
        assert [(p.name, p.default) for p in found] == list(arguments.items())
        assert all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in found)
        assert (ours[-1].name, ours[-1].default) == ("loss_scale", None)
