"""Hyperparameters of single variables, and decoupled weight decay for every rule."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._validate import Real
from tests.optimizer_db import Record, every_record, slices_of, state_of

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def decayed(record: Record, weight_decay: Any, **flags: bool) -> Any:
    """Make an optimizer whose weights decay."""
    if "weight_decay" not in record.cls._constraints:
        return fo.decouple(record.make(), weight_decay, **flags)
    return record.make(weight_decay=weight_decay)


# ------------------------------------------------------------------ settings of one variable


@every_record()
def test_a_setting_is_the_hyperparameter_of_its_variable(record: Record) -> None:
    rng = np.random.default_rng(1)
    start = rng.normal(size=(5, 3))
    a, b = fo.Variable(start), fo.Variable(start)
    alone = [fo.Variable(start), fo.Variable(start)]
    both = record.make()
    both.configure(b, learning_rate=0.025)
    apart = [record.make(), record.make(learning_rate=0.025)]
    for k in range(4):
        dense = rng.normal(size=(5, 3))
        slices = fo.IndexedSlices(rng.normal(size=(3, 3)), [4, 0, 4])
        gradients = [dense, slices] if k % 2 else [slices, dense]
        both.apply_gradients(list(zip(gradients, (a, b), strict=True)))
        for optimizer, gradient, var in zip(apart, gradients, alone, strict=True):
            optimizer.apply_gradients([(gradient, var)])
    for var, other in zip((a, b), alone, strict=True):
        assert var.numpy().tobytes() == other.numpy().tobytes()
    if record.cls is not fo.AdagradDAOptimizer:
        assert a.numpy().tobytes() != b.numpy().tobytes()


ROWS = ([4, 0, 4], [1, 4, 1], [2, 0, 3])  # of three steps: some miss one or two


@every_record()
@every_dtype
@pytest.mark.parametrize("sparse", [False, True])
def test_every_hyperparameter_may_be_the_own_of_a_variable(
    record: Record, dtype: Any, sparse: bool
) -> None:
    rng = np.random.default_rng(2)
    start = rng.normal(size=(5, 3)).astype(dtype)
    defaults = inspect.signature(record.cls).parameters
    for name, constraint in record.cls._constraints.items():
        optimizer = record.make()
        if not isinstance(constraint, Real) or constraint.fixed or name in optimizer._common:
            continue
        value = defaults[name].default
        value = value / 2 if isinstance(value, float) and value else 0.125
        optimizer.configure(b := fo.Variable(start), **{name: value})
        a, *alone = (fo.Variable(start) for _ in range(3))
        apart = [record.make(), record.make(**{name: value})]
        for rows in ROWS:
            gradients: list[Any] = [rng.normal(size=(5, 3)).astype(dtype) for _ in range(2)]
            if sparse:
                gradients = [fo.IndexedSlices(each[:3], rows) for each in gradients]
            optimizer.apply_gradients(list(zip(gradients, (a, b), strict=True)))
            for each, gradient, var in zip(apart, gradients, alone, strict=True):
                each.apply_gradients([(gradient, var)])
        for var, other in zip((a, b), alone, strict=True):
            assert var.numpy().tobytes() == other.numpy().tobytes(), name


@every_record()
@pytest.mark.parametrize("sparse", [False, True])
def test_each_variable_decays_at_its_own_rate(record: Record, sparse: bool) -> None:
    rng = np.random.default_rng(3)
    start = rng.normal(size=(5, 3))
    rates = (0.125, 0.5)
    together = record.make()
    variables, alone = ([fo.Variable(start) for _ in rates] for _ in range(2))
    for var, rate in zip(variables, rates, strict=True):
        together.configure(var, weight_decay=rate)
    apart = [decayed(record, rate) for rate in rates]
    for rows in ROWS:
        gradients: list[Any] = [rng.normal(size=(5, 3)) for _ in rates]
        if sparse:
            gradients = [fo.IndexedSlices(each[:3], rows) for each in gradients]
        together.apply_gradients(list(zip(gradients, variables, strict=True)))
        for each, gradient, var in zip(apart, gradients, alone, strict=True):
            each.apply_gradients([(gradient, var)])
    for var, other in zip(variables, alone, strict=True):
        assert var.numpy().tobytes() == other.numpy().tobytes()


@every_record()
def test_a_setting_may_vary_and_is_checked_at_every_step(record: Record) -> None:
    rates = iter([0.5, 0.25, float("nan"), 0.125])
    var, other = fo.Variable(np.ones(3), name="w"), fo.Variable(np.ones(3), name="other")
    expected = fo.Variable(np.ones(3))
    optimizer = record.make()
    optimizer.configure(var, learning_rate=lambda: next(rates))
    same = iter([0.5, 0.25, 0.125])
    alone = record.make(learning_rate=lambda: next(same))
    for k in range(4):
        pairs = [(np.ones(3), var), (np.ones(3), other)]
        if k == 2:
            before = state_of(optimizer, var, other)
            with pytest.raises(ValueError, match=r"for variable 'w': learning_rate\(\) must be"):
                optimizer.apply_gradients(pairs)
            assert state_of(optimizer, var, other) == before
            continue
        optimizer.apply_gradients(pairs)
        alone.apply_gradients([(np.ones(3), expected)])
    assert var.numpy().tobytes() == expected.numpy().tobytes()


def test_a_setting_may_be_a_schedule() -> None:
    step = fo.Variable(np.int64(0), trainable=False)
    var, other = fo.Variable(np.zeros(1)), fo.Variable(np.zeros(1))
    optimizer = fo.GradientDescentOptimizer(1.0)
    optimizer.configure(var, learning_rate=fo.schedules.PiecewiseConstantDecay([1], [0.5, 0.25]))
    for _ in range(4):
        optimizer.apply_gradients([(np.ones(1), var), (np.ones(1), other)], global_step=step)
    assert other.numpy() == -4 and var.numpy() == -(0.5 + 0.5 + 0.25 + 0.25)


@every_record()
def test_bad_settings_are_refused_and_change_nothing(record: Record) -> None:
    var = fo.Variable(np.ones(3), name="w")
    optimizer = record.make()
    cls = record.cls.__name__
    for name, constraint in record.cls._constraints.items():
        if isinstance(constraint, Real) and not constraint.fixed and name not in optimizer._common:
            for value, error in constraint.bad_values():
                with pytest.raises(error, match=rf"^{cls}: {name} must be "):
                    optimizer.configure(var, **{name: value})
        elif name not in optimizer._own_flags:
            with pytest.raises(ValueError, match=rf"^{cls}.configure: {name} is one for all"):
                optimizer.configure(var, **{name: 0.5})
    with pytest.raises(TypeError, match=r"no hyperparameter 'lr'; there are .*learning_rate"):
        optimizer.configure(var, learning_rate=0.5, lr=0.5)
    with pytest.raises(ValueError, match="weight_decay must be"):
        optimizer.configure(var, learning_rate=0.5, weight_decay=-1.0)
    for wrong in ("w", 3, np.ones(3), [var, np.ones(3)], fo.Tensor(1.0)):
        with pytest.raises(TypeError, match=r"configure: var must be a fastopt Variable"):
            optimizer.configure(wrong, learning_rate=0.5)
    other = fo.Variable(np.ones(3))
    optimizer.apply_gradients([(np.ones(3), var)])
    record.make().apply_gradients([(np.ones(3), other)])
    assert var.numpy().tobytes() == other.numpy().tobytes()


def test_settings_are_added_up_and_go_to_several_variables() -> None:
    a, b = fo.Variable(np.ones(1)), fo.Variable(np.ones(1))
    optimizer = fo.MomentumOptimizer(1.0, 0.5)
    optimizer.configure([a, b], learning_rate=0.25)
    optimizer.configure(b, momentum=0.0)
    for _ in range(2):
        optimizer.apply_gradients([(np.ones(1), a), (np.ones(1), b)])
    assert a.numpy() == 1 - 0.25 * (1 + 1.5) and b.numpy() == 1 - 0.25 * 2


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"]
)
def test_settings_are_copied(duplicate: Any) -> None:
    var = fo.Variable(np.ones(3), name="w")
    optimizer = fo.AdagradOptimizer(0.1)
    optimizer.configure(var, learning_rate=0.5, weight_decay=0.25)
    twin, var2 = duplicate((optimizer, var))
    for one, each in ((optimizer, var), (twin, var2)):
        one.apply_gradients([(np.ones(3), each)])
    assert var.numpy().tobytes() == var2.numpy().tobytes()
    assert var.numpy()[0] == pytest.approx(0.75 - 0.5 / np.sqrt(1.1))


def test_settings_do_not_keep_a_variable_alive() -> None:
    optimizer = fo.GradientDescentOptimizer(0.1)
    var = fo.Variable(np.ones(3))
    optimizer.configure(var, learning_rate=0.5)
    assert len(optimizer._own) == 1
    del var
    assert len(optimizer._own) == 0


# ------------------------------------------------------------------ decoupled decay


@every_record()
def test_decay_comes_before_the_update(record: Record) -> None:
    rng = np.random.default_rng(2)
    start, values = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    for gradient in (values, slices_of(values)):
        a = fo.Variable(start)
        optimizer = decayed(record, 0.25)
        if record.whole:
            pytest.skip("its weight decay is a part of the step")
        if optimizer._decay is None:
            times = optimizer._hyperparameters["times_learning_rate"]
        else:
            times = optimizer._decay.times_learning_rate
        rate = 0.25 * optimizer._hyperparameters["learning_rate"] if times else 0.25
        b = fo.Variable(start - start * rate)
        plain = record.make()
        optimizer.apply_gradients([(gradient, a)])
        plain.apply_gradients([(gradient, b)])
        assert a.numpy().tobytes() == b.numpy().tobytes()
        for name in record.slots:  # which know nothing of it, but for rules that look at w
            slots = [o.get_slot(v, name).numpy() for o, v in ((optimizer, a), (plain, b))]
            assert slots[0].tobytes() == slots[1].tobytes()


@every_dtype
def test_decay_of_rows_without_a_gradient(dtype: Any) -> None:
    """Known from tensorflow/addons#767, tensorflow PR#21789, pytorch PR#25560."""
    for only, others in ((False, 0.970299), (True, 1.0)):
        for make in (
            lambda only=only: fo.AdamWOptimizer(0.01, listed_rows_only=only),
            lambda only=only: fo.decouple(
                fo.GradientDescentOptimizer(0.1), 0.01, listed_rows_only=only
            ),
            lambda only=only: fo.decouple(fo.AdagradOptimizer(0.1), 0.01, listed_rows_only=only),
        ):
            table = fo.Variable(np.ones((3, 1), dtype))
            optimizer = make()
            for _ in range(3):
                # Listed twice: it decays once.
                slices = fo.IndexedSlices(np.zeros((2, 1), dtype), [0, 0])
                optimizer.apply_gradients([(slices, table)])
            np.testing.assert_allclose(table.numpy().ravel(), [0.970299, others, others], rtol=3e-7)


@every_dtype
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_decay_of_large_tables(dtype: Any, threads: int) -> None:
    rng = np.random.default_rng(3)
    start = rng.normal(size=(9000, 17)).astype(dtype)
    ids = np.minimum((9000 * rng.random(4000) ** 3).astype(np.int32), 8999)
    slices = fo.IndexedSlices(np.zeros((4000, 17), dtype), ids)
    rate = dtype(0.25)
    for only in (False, True):
        table = fo.Variable(start)
        optimizer = fo.decouple(fo.GradientDescentOptimizer(0.1), 0.25, listed_rows_only=only)
        with fo.num_threads(threads):
            optimizer.apply_gradients([(slices, table)])
        expected = start - start * rate
        if only:
            others = np.setdiff1d(np.arange(9000), ids)
            expected[others] = start[others]
        np.testing.assert_array_equal(table.numpy(), expected)


@pytest.mark.parametrize("wrapped", [False, True], ids=["number", "callable"])
def test_decay_times_the_learning_rate(wrapped: bool) -> None:
    def value(number: float) -> Any:
        return (lambda: number) if wrapped else number

    w, bias = fo.Variable(np.ones(2)), fo.Variable(np.ones(2))
    optimizer = fo.decouple(
        fo.GradientDescentOptimizer(value(0.5)), value(0.25), times_learning_rate=True
    )
    optimizer.configure(bias, weight_decay=value(0.0))
    optimizer.apply_gradients([(np.zeros(2), w), (np.zeros(2), bias)])
    assert (w.numpy() == 0.875).all() and (bias.numpy() == 1).all()


def test_a_small_rate_is_not_lost() -> None:
    """``1 - rate`` in float32 would lose the digits of the rate, always to the same side."""
    rng = np.random.default_rng(4)
    start = (1 + rng.random(10_000)).astype(np.float32)
    var = fo.Variable(start)
    optimizer = fo.decouple(fo.GradientDescentOptimizer(0.0), 1e-6)
    for _ in range(200):
        optimizer.apply_gradients([(np.zeros(10_000, np.float32), var)])
    shrunk = np.mean(var.numpy().astype(float) / start)
    assert shrunk == pytest.approx((1 - 1e-6) ** 200, abs=1e-6)


def test_decouple_refuses() -> None:
    class Mine(fo.Optimizer):
        pass

    with pytest.raises(TypeError, match=r"optimizer must be one of fastopt's own rules"):
        fo.decouple(Mine(False, "Mine"), 0.1)
    for decays in (
        fo.AdamWOptimizer(0.1),
        fo.LionOptimizer(),
        fo.decouple(fo.AdamOptimizer(), 0.1),
    ):
        with pytest.raises(ValueError, match="has a weight_decay already"):
            fo.decouple(decays, 0.1)
    for bad, error in ((-0.1, ValueError), (float("nan"), ValueError), ("0.1", TypeError)):
        with pytest.raises(error, match=r"^decouple: weight_decay must be"):
            fo.decouple(fo.AdamOptimizer(), bad)
    for flag in ("times_learning_rate", "listed_rows_only"):
        with pytest.raises(TypeError, match=f"^decouple: {flag} must be a bool"):
            fo.decouple(fo.AdamOptimizer(), 0.1, **{flag: 1})


def test_the_gradient_may_be_the_weight_itself() -> None:
    """pytorch/pytorch PR#34904: a step that reads what it has just written."""
    var = fo.Variable(np.array([2.0, 4.0]))
    optimizer = fo.decouple(fo.GradientDescentOptimizer(0.25), 0.5)
    optimizer.apply_gradients([(var._storage, var)])
    np.testing.assert_array_equal(var.numpy(), [1 - 0.5, 2 - 1])
