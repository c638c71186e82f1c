"""`Optimizer(loss_scale=...)`: scaling, unscaling, and steps that are skipped."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt.loss_scale import DynamicLossScale, FixedLossScale
from tests.optimizer_db import Record, every_record, fresh_graph, slices_of, state_of

__all__ = ["fresh_graph"]

ENABLE = "TF_ENABLE_AUTO_MIXED_PRECISION"
ENABLE_SCALING = "TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING"


def variable(dtype: Any = np.float64) -> fo.Variable:
    return fo.Variable(np.array([1.0, 2.0], dtype), name="w")


# ---------------------------------------------------------------------- compute_gradients


@pytest.mark.parametrize("scale", [1, 128.0, "dynamic", FixedLossScale(8)])
def test_gradients_are_those_of_the_loss(scale: Any) -> None:
    w = variable()
    opt = fo.GradientDescentOptimizer(0.1, loss_scale=scale)
    for loss in (lambda: np.sum(w * w), np.sum(w * w)):
        ((gradient, var),) = opt.compute_gradients(loss)
        assert var is w
        np.testing.assert_array_equal(gradient, [2.0, 4.0])  # powers of two scale exactly
    assert opt.doing_loss_scaling()
    assert not fo.GradientDescentOptimizer(0.1).doing_loss_scaling()


def test_the_backward_pass_sees_the_scaled_loss() -> None:
    """Without a scale a gradient of 2**-30 is zero in float16."""
    tiny = np.float16(2.0**-15)
    for scale, expected in ((None, 0.0), (2.0**15, 2.0**-30)):
        w = fo.Variable(np.ones(1, np.float32), name="w")
        opt = fo.GradientDescentOptimizer(1.0, loss_scale=scale)

        def loss(w: fo.Variable = w) -> Any:
            return np.sum(w.read_value().astype(np.float16) * tiny * tiny)

        ((gradient, _),) = opt.compute_gradients(loss)
        assert gradient.dtype == np.float32
        assert gradient[0] == expected


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_of_float16_variables_are_unscaled_in_float32(
    wrapped: bool, sparse: bool
) -> None:
    """In float16 they would vanish after all."""
    tiny = np.float16(2.0**-15)
    w = fo.Variable(np.ones((3, 1), np.float16), name="w")
    opt: fo.Optimizer = fo.GradientDescentOptimizer(1.0, loss_scale=None if wrapped else 2**15)
    if wrapped:
        opt = fo.MixedPrecisionLossScaleOptimizer(opt, 2**15)

    def loss() -> Any:
        return np.sum((fo.embedding_lookup(w, [1, 2, 1]) if sparse else w * 1) * tiny * tiny)

    ((gradient, _),) = opt.compute_gradients(loss)
    assert gradient.dtype == np.float32
    dense = gradient.to_dense() if sparse else gradient
    np.testing.assert_array_equal(
        dense.ravel(), 2.0**-30 * np.array([0.0, 2.0, 1.0] if sparse else [1.0, 1.0, 1.0])
    )


def test_slices_keep_their_rows_and_none_its_place() -> None:
    table, other = fo.Variable(np.ones((4, 2)), name="table"), variable()
    opt = fo.GradientDescentOptimizer(0.1, loss_scale=4)
    pairs = opt.compute_gradients(
        lambda: np.sum(fo.embedding_lookup(table, [2, 0, 2])), [table, other]
    )
    (slices, _), (nothing, _) = pairs
    assert slices.indices.tolist() == [2, 0, 2]
    np.testing.assert_array_equal(slices.values, np.ones((3, 2)))
    assert nothing is None


def test_a_callable_is_called_once_and_the_scale_read_once() -> None:
    """The seed's wrapper closes over its own name and recurses for ever."""
    w = variable()
    scale = DynamicLossScale(4.0)
    reads, calls = [], []

    class Counting(DynamicLossScale):
        def __call__(self) -> np.float32:
            reads.append(1)
            return scale()

    def loss() -> Any:
        calls.append(1)
        return np.sum(w * w)

    fo.GradientDescentOptimizer(0.1, loss_scale=Counting()).compute_gradients(loss)
    assert (len(calls), len(reads)) == (1, 1)


def test_grad_loss_multiplies() -> None:
    w = variable()
    opt = fo.GradientDescentOptimizer(0.1, loss_scale=16)
    ((gradient, _),) = opt.compute_gradients(lambda: np.sum(w * w), grad_loss=10.0)
    np.testing.assert_array_equal(gradient, [20.0, 40.0])


def test_checks_come_after_unscaling_and_name_the_callers_loss() -> None:
    opt = fo.GradientDescentOptimizer(0.1, loss_scale=16)

    def no_return() -> None:
        return None

    with pytest.raises(TypeError, match="no_return.*is a `return` missing"):
        opt.compute_gradients(no_return)
    with pytest.raises(ValueError, match="read no trainable variables"):
        opt.minimize(lambda: 3.0)


def test_a_scale_that_the_loss_cannot_hold_skips_the_step() -> None:
    """2**16, which a dynamic scale comes to, is infinite in float16."""
    w = fo.Variable(np.ones(1, np.float32), name="w")
    scale = DynamicLossScale(2.0**16)
    opt = fo.GradientDescentOptimizer(1.0, loss_scale=scale)
    with np.errstate(invalid="ignore"):
        opt.minimize(lambda: np.sum(w.read_value().astype(np.float16)))
    assert w.item() == 1.0 and float(scale()) == 2.0**15


# ---------------------------------------------------------------------- apply_gradients


@every_record()
def test_a_step_is_that_without_a_scale(record: Record) -> None:
    finals = []
    for scale in (None, 2.0**10, "dynamic"):
        with fo.Graph().as_default():
            w, table = variable(), fo.Variable(np.ones((3, 2)), name="table")
            opt = record.make(loss_scale=scale)
            for _ in range(3):
                opt.minimize(
                    lambda w=w, t=table: np.sum(w * w) + np.sum(fo.embedding_lookup(t, [0, 2, 0]))
                )
            finals.append([w.numpy().tobytes(), table.numpy().tobytes()])
    assert finals[0] == finals[1] == finals[2]


@every_record()
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_step_that_is_not_finite_is_skipped_for_all_variables(record: Record, bad: float) -> None:
    good, w, step = variable(), fo.Variable(np.ones((3, 2)), name="v"), fo.create_global_step()
    scale = DynamicLossScale(16.0)
    opt = record.make(loss_scale=scale)
    opt.apply_gradients([(np.ones(2), good), (np.ones((3, 2)), w)], global_step=step)
    before = state_of(opt, good, w)
    poisoned = np.ones((3, 2))
    poisoned[1, 1] = bad
    for number, gradient in enumerate((poisoned, slices_of(poisoned)), 1):
        done = opt.apply_gradients([(np.ones(2), good), (gradient, w)], global_step=step)
        assert done.variables == () and done.step == 1
        assert float(scale()) == 16.0 / 2**number
        assert scale.skipped_steps == number
    after = state_of(opt, good, w)
    for name in ("current_loss_scale", "good_steps"):
        before.pop(name), after.pop(name)
    assert after == before and step.item() == 1


def test_a_skipped_step_makes_no_slots_and_checks_the_step_counter() -> None:
    w = variable()
    opt = fo.MomentumOptimizer(0.1, 0.9, loss_scale="dynamic")
    bad: Any = [(np.array([np.nan, 0.0]), w)]
    with pytest.raises(TypeError, match="global_step"):
        opt.apply_gradients(bad, global_step=3)  # type: ignore[arg-type]
    opt.apply_gradients(bad)
    assert opt.get_slot_names() == []
    assert [var.name for var in opt.variables()] == ["current_loss_scale", "good_steps"]


def test_a_fixed_scale_applies_whatever_comes() -> None:
    w = variable()
    fo.GradientDescentOptimizer(1.0, loss_scale=8).apply_gradients([(np.array([np.nan, 1.0]), w)])
    assert np.isnan(w.numpy()[0]) and w.numpy()[1] == 1.0


def test_none_is_passed_over() -> None:
    """tensorflow/tensorflow#31956: the check of finiteness fell over a gradient of None."""
    v1, v2 = variable(), variable()
    opt = fo.GradientDescentOptimizer(1.0, loss_scale="dynamic")
    opt.apply_gradients([(None, v1), (np.ones(2), v2)])
    assert v1.numpy().tolist() == [1.0, 2.0] and v2.numpy().tolist() == [0.0, 1.0]


def test_three_bad_steps_at_a_scale_of_two() -> None:
    """tensorflow/tensorflow#38357: the scale stops at 1, or at the bound that the user sets."""
    for minimum, expected in ((1.0, [1, 1, 1]), (0.125, [1, 0.5, 0.25])):
        w = variable()
        scale = DynamicLossScale(2.0, min_loss_scale=minimum)
        opt = fo.GradientDescentOptimizer(1.0, loss_scale=scale)
        scales = []
        for _ in range(3):
            opt.apply_gradients([(np.array([np.inf, 0.0]), w)])
            scales.append(float(scale()))
        assert scales == expected
        assert w.numpy().tolist() == [1.0, 2.0] and scale.skipped_steps == 3


def test_an_error_changes_neither_variables_nor_scale() -> None:
    w = variable()
    scale = DynamicLossScale(2.0, increment_period=1)
    opt = fo.GradientDescentOptimizer(1.0, loss_scale=scale)
    with pytest.raises(ValueError, match="No gradients"):
        opt.apply_gradients([(None, w)])
    with pytest.raises(ValueError, match="shape"):
        opt.apply_gradients([(np.ones(3), w)])
    assert float(scale()) == 2.0 and w.numpy().tolist() == [1.0, 2.0]


def test_gate_none_does_not_overlap_with_a_scale() -> None:
    """An infinity in the last gradient must not find the first variable updated."""
    a, b = fo.Variable(np.float64(1.0), name="a"), fo.Variable(np.float64(1.0), name="b")
    opt = fo.GradientDescentOptimizer(1.0, loss_scale="dynamic")
    with np.errstate(all="ignore"):
        opt.minimize(lambda: a * np.float64(np.inf) + b, gate_gradients=opt.GATE_NONE)
    assert (a.item(), b.item()) == (1.0, 1.0)


def test_locking_holds() -> None:
    w = variable()
    opt = fo.GradientDescentOptimizer(0.5, use_locking=True, loss_scale="dynamic")
    opt.minimize(lambda: np.sum(w * w))
    assert w.numpy().tolist() == [0.0, 0.0]


# ---------------------------------------------------------------------- where a scale comes from


@pytest.mark.parametrize("bad", ["static", [2.0], object()])
def test_what_is_no_scale_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="loss scale must be"):
        fo.GradientDescentOptimizer(0.1, loss_scale=bad)
    with pytest.raises(ValueError, match="at least 1"):
        fo.GradientDescentOptimizer(0.1, loss_scale=0.5)


@pytest.mark.parametrize(
    ("scaling", "whole", "expected"),
    [
        (None, None, False),
        (None, "1", True),
        (None, "0", False),
        ("1", None, True),
        ("1", "0", True),
        ("0", "1", False),
        ("", "1", False),
        ("true", None, False),
    ],
)
def test_the_environment_may_ask_for_a_scale(
    monkeypatch: pytest.MonkeyPatch, scaling: str | None, whole: str | None, expected: bool
) -> None:
    for name, value in ((ENABLE_SCALING, scaling), (ENABLE, whole)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    opt = fo.GradientDescentOptimizer(0.1)
    assert opt.doing_loss_scaling() is expected
    assert isinstance(opt._loss_scale, DynamicLossScale) is expected
    assert isinstance(fo.GradientDescentOptimizer(0.1, loss_scale=2)._loss_scale, FixedLossScale)


def test_a_wrapper_takes_no_scale_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENABLE, "1")
    w = variable()
    inner = fo.GradientDescentOptimizer(0.5)
    opt = fo.GradientAccumulation(inner, 1)
    assert opt.doing_loss_scaling() and opt._loss_scale is None
    opt.minimize(lambda: np.sum(w * w))
    assert w.numpy().tolist() == [0.0, 0.0]


def test_copies_have_a_scale_of_their_own() -> None:
    w = variable()
    opt = fo.GradientDescentOptimizer(0.5, loss_scale=DynamicLossScale(8.0))
    for other in (copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))):
        other.apply_gradients([(np.array([np.nan, 1.0]), w)])
        assert float(other._loss_scale()) == 4.0
    assert float(opt._loss_scale()) == 8.0  # type: ignore[misc]
