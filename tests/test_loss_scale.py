"""Loss scales: the state machine, what is finite, scaling, and the wrapper."""

from __future__ import annotations

import copy
import json
import math
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastopt import _unscaling as unscaling
from fastopt import loss_scale as ls
from fastopt.autodiff import Tensor
from fastopt.indexed_slices import IndexedSlices
from fastopt.loss_scale_optimizer import MixedPrecisionLossScaleOptimizer
from fastopt.optimizers import AdamOptimizer, GradientDescentOptimizer, MomentumOptimizer
from fastopt.variable import Variable

GOLDEN = np.load(Path(__file__).parent / "golden" / "loss_scale.npz")
CASES: dict[str, dict[str, Any]] = json.loads(str(GOLDEN["meta"]))["cases"]
MACHINES = [case for case in CASES if case != "wrapped"]

GOOD = np.ones(2, np.float32)
BAD = np.array([1.0, np.nan], np.float32)


def good_steps(scale: ls.DynamicLossScale) -> int:
    return int(scale.variables()[1].item())


# ---------------------------------------------------------------------- the state machine


@pytest.mark.parametrize("case", MACHINES)
def test_golden(case: str) -> None:
    scale = ls.DynamicLossScale(**CASES[case])
    assert scale() == GOLDEN[f"{case}/scale"][0]
    for k, finite in enumerate(GOLDEN[f"{case}/finite"]):
        operation, should_apply = scale.update([GOOD, None, GOOD if finite else BAD])
        assert operation is None
        assert should_apply == GOLDEN[f"{case}/should_apply"][k]
        assert scale() == GOLDEN[f"{case}/scale"][k + 1]
        assert scale().dtype == np.float32
        assert good_steps(scale) == GOLDEN[f"{case}/good_steps"][k + 1]
    assert scale.skipped_steps == np.count_nonzero(~GOLDEN[f"{case}/finite"])


@pytest.mark.parametrize(
    ("steps", "start", "period", "multiplier", "scales"),
    [
        ("TTTTTT", 1, 2, 2, "1 2 2 4 4 8"),
        ("FFFFFF", 16, 2, 2, "8 4 2 1 1 1"),
        ("TTTFT", 1, 2, 2, "1 2 2 1 1"),
        ("TTFTT", 4, 2, 3, "4 12 4 4 12"),
        ("FTTTFTFTTTF", 4, 2, 2, "2 2 4 4 2 2 1 1 2 2 1"),
        ("TTTFTT", 1, 1, 2, "2 4 8 4 8 16"),
        ("TFTFTF", 1, 1, 2, "2 1 2 1 2 1"),
        ("TFTFTFT", 32, 2, 2, "32 16 16 8 8 4 4"),
    ],
)
def test_tables(steps: str, start: float, period: int, multiplier: float, scales: str) -> None:
    scale = ls.DynamicLossScale(start, period, multiplier)
    seen = []
    for step in steps:
        assert scale.update(GOOD if step == "T" else BAD) == (None, step == "T")
        seen.append(float(scale()))
    assert seen == [float(text) for text in scales.split()]


def test_lower_bound() -> None:
    """tensorflow/tensorflow#38357: users want a scale below 1."""
    default, lower = ls.DynamicLossScale(2), ls.DynamicLossScale(2, min_loss_scale=2.0**-3)
    seen = [(default.update(BAD)[1], lower.update(BAD)[1]) for _ in range(6)]
    assert seen == [(False, False)] * 6
    assert (default(), lower()) == (1.0, 0.125)
    assert lower.get_config()["min_loss_scale"] == 0.125


@pytest.mark.parametrize("lowest", [0.5, 4.0])
def test_lower_bound_is_in_the_config(lowest: float) -> None:
    """It is left out where it is TensorFlow's, 1: neither below nor above."""
    scale = ls.DynamicLossScale(min_loss_scale=lowest)
    assert ls.DynamicLossScale.from_config(scale.get_config()).min_loss_scale == lowest


def test_steps_of_two_threads_both_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step reads of the state no other step changes before it has written."""
    scale = ls.DynamicLossScale(8.0, 10)
    other = threading.Thread(target=scale.advance, args=(True,))
    assign = Variable.assign

    def assign_late(self: Variable, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not other and other.ident is None:
            other.start()
            other.join(0.2)  # it ends meanwhile unless something makes it wait
        return assign(self, *args, **kwargs)

    monkeypatch.setattr(Variable, "assign", assign_late)
    scale.advance(True)
    other.join()
    assert good_steps(scale) == 2


def test_dynamic_errors() -> None:
    for name, constraint in ls.DynamicLossScale.constraints.items():
        for value, error in constraint.bad_values():
            with pytest.raises(error, match=name):
                ls.DynamicLossScale(**{name: value})
    for name in ("initial_loss_scale", "min_loss_scale"):
        with pytest.raises(ValueError, match=f"{name} must be finite in float32, got 1e\\+39"):
            ls.DynamicLossScale(**{name: 1e39})
    with pytest.raises(ValueError, match="increment_period must be whole, got 2.5"):
        ls.DynamicLossScale(increment_period=2.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gradient must hold real numbers"):
        ls.DynamicLossScale().update(["gradient"])


def test_fixed() -> None:
    scale = ls.FixedLossScale(1000)
    assert scale() == 1000.0 and scale().dtype == np.float32
    for gradients in ([0.0], [math.nan], [None], []):
        assert scale.update(gradients) == (None, True)
    assert scale() == 1000.0 and scale.variables() == []
    assert ls.FixedLossScale(True)() == 1.0
    for bad in (np.float32(2.0), np.int64(2), "2", None, [2.0]):
        with pytest.raises(ValueError, match="must be a Python int or float"):
            ls.FixedLossScale(bad)  # type: ignore[arg-type]
    for bad in (0, 0.99, -1, math.nan, math.inf, 1e39):
        with pytest.raises(ValueError, match="at least 1 and finite"):
            ls.FixedLossScale(bad)


def test_config_copies_and_pickles() -> None:
    fixed = ls.FixedLossScale(12)
    assert fixed.get_config() == {"loss_scale_value": 12.0}
    dynamic = ls.DynamicLossScale(4.0, 3, 5.0)
    config = {"initial_loss_scale": 4.0, "increment_period": 3, "multiplier": 5.0}
    assert dynamic.get_config() == config
    assert (dynamic.initial_loss_scale, dynamic.increment_period) == (4.0, 3)
    assert (dynamic.multiplier, dynamic.min_loss_scale) == (5.0, 1.0)
    for scale in (fixed, dynamic, ls.DynamicLossScale(min_loss_scale=0.5)):
        again = type(scale).from_config(scale.get_config())
        assert again.get_config() == scale.get_config()
        assert again() == scale()
        assert eval(repr(scale), vars(ls)).get_config() == scale.get_config()
    dynamic.update(BAD)
    dynamic.update(GOOD)
    for other in (copy.deepcopy(dynamic), pickle.loads(pickle.dumps(dynamic))):
        assert other() == dynamic() == 1.0
        assert good_steps(other) == 1
        for _ in range(2):
            other.update(GOOD)
        assert other() == 5.0 and dynamic() == 1.0


def test_state_is_in_variables() -> None:
    scale = ls.DynamicLossScale(8.0, 4)
    current, good = scale.variables()
    assert current.name.startswith("current_loss_scale") and current.dtype == np.float32
    assert good.name.startswith("good_steps") and good.dtype == np.int64
    assert not current.trainable and not good.trainable
    current.assign(np.float32(64.0))  # as restoring a checkpoint does
    good.assign(3)
    scale.update(GOOD)
    assert scale() == 128.0


def test_get() -> None:
    assert ls.get(None) is None
    dynamic = ls.DynamicLossScale()
    assert ls.get(dynamic) is dynamic
    assert isinstance(ls.get(3), ls.FixedLossScale) and ls.get(3)() == 3.0  # type: ignore[misc]
    made = ls.get("dynamic")
    assert isinstance(made, ls.DynamicLossScale)
    assert made.get_config() == ls.DynamicLossScale().get_config()
    for bad in ("fixed", object(), [1.0]):
        with pytest.raises(ValueError, match="a loss scale must be"):
            ls.get(bad)


# ---------------------------------------------------------------------- what is finite

BIG32 = np.float32(3e38)


@pytest.mark.parametrize(
    ("gradients", "finite"),
    [
        ([], True),
        ([None], True),
        (None, True),
        (1.0, True),
        (np.array(np.inf), False),
        ({"a": [GOOD, (None, GOOD)]}, True),
        ({"a": [GOOD, (None, BAD)]}, False),
        ([[1, 2], "none"][:1], True),
        (np.zeros(0, np.longdouble), True),
        (np.array([1.0, -np.inf], np.longdouble), False),
        (np.arange(3), True),
        (np.array([np.inf, -np.inf], np.float16), False),
        (np.full(4, 6e4, np.float16), True),
        (np.full(4, BIG32), True),
        (np.full(4, 1e308), True),  # whose squares overflow
        (np.array([1e308, -np.inf]), False),
        (np.full((3, 0), 1.0), True),
        (IndexedSlices(np.array([[1.0, np.nan]]), [5]), False),
        (IndexedSlices(np.zeros((0, 2)), []), True),
        (IndexedSlices(np.full((2, 1), BIG32), [0, 1]), True),
        (IndexedSlices(np.full((2, 1), BIG32), [1, 1]), False),
        (IndexedSlices(np.array([[BIG32], [-BIG32]]), [1, 1]), True),
        (IndexedSlices(np.full((2, 1), 1e308), [1, 1]), False),
        (IndexedSlices(np.full((2, 1), 1e308), [1, 0]), True),
        (IndexedSlices(np.full((2, 1), 6e4, np.float16), [0, 0]), False),
        (IndexedSlices(np.full((2, 1), 6e4, np.float16), [0, 3]), True),
        (IndexedSlices(np.array([[6e4], [6e4], [-6e4]], np.float16), [0, 0, 0]), True),
    ],
)
def test_all_finite(gradients: Any, finite: bool) -> None:
    assert unscaling.all_finite(gradients) is finite
    assert ls.DynamicLossScale().update(gradients) == (None, finite)


@pytest.mark.parametrize("gradient", [np.array([1j]), np.array(["1"])])
def test_arrays_that_are_no_gradients(gradient: Any) -> None:
    with pytest.raises(TypeError, match="gradient must hold real numbers"):
        unscaling.all_finite([gradient])


# ---------------------------------------------------------------------- scaling and unscaling


def test_scale_loss() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        scaled = unscaling.scale_loss(Tensor(np.array(1.5, dtype)), np.float32(4.0))
        assert scaled.dtype == dtype and float(scaled) == 6.0
    calls = []

    def loss() -> Any:
        calls.append(1)
        return Tensor(2.0)

    wrapped = unscaling.scale_loss(loss, 8.0)
    assert not calls
    assert float(wrapped()) == 16.0 and len(calls) == 1
    for value in (None, 3.0, "loss"):  # for the optimizer to refuse
        assert unscaling.scale_loss(value, 8.0) is value


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 3.0, 2.0**15, 2.0**120])
def test_unscale(dtype: Any, scale: float) -> None:
    dense = np.array([1.0, -0.5, 0.0, 1e4], dtype)
    s = IndexedSlices(np.array([[1.0], [2.0]], dtype), [1, 0], (3, 1))
    kept = dense.copy()
    got, none, sparse = unscaling.unscale_gradients([dense, None, s], scale)
    assert none is None
    assert got.dtype == sparse.dtype == dtype  # type: ignore[union-attr]
    exact = (dense.astype(np.float64) / scale).astype(dtype)
    np.testing.assert_allclose(got, exact, rtol=2 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(dense, kept)
    assert isinstance(sparse, IndexedSlices) and sparse.dense_shape == (3, 1)
    np.testing.assert_array_equal(sparse.indices, [1, 0])
    exact = (s.values.astype(np.float64) / scale).astype(dtype)
    np.testing.assert_allclose(sparse.values, exact, rtol=2 * np.finfo(dtype).eps)


def test_unscale_array_likes() -> None:
    got, scalar = unscaling.unscale_gradients([[2.0, 4.0], 3], 2.0)
    np.testing.assert_array_equal(got, [1.0, 2.0])
    assert scalar == 1.5
    with pytest.raises(TypeError, match="gradient must hold real numbers"):
        unscaling.unscale_gradients(["text"], 2.0)


def test_unscale_an_iterator() -> None:
    (got,) = unscaling.unscale_gradients(iter([GOOD]), 2.0)
    np.testing.assert_array_equal(got, GOOD / 2)


def test_unscale_to_master_weights() -> None:
    """What is too small for 16 bits is there in float32."""
    tiny = np.full(2, 5e-4, np.float16)
    (narrow,), (wide,) = (
        unscaling.unscale_gradients([tiny], 2.0**15, d) for d in (None, np.float32)
    )
    assert not np.any(narrow) and narrow.dtype == np.float16  # type: ignore[union-attr]
    assert wide.dtype == np.float32  # type: ignore[union-attr]
    np.testing.assert_allclose(wide, tiny.astype(np.float64) / 2**15, rtol=1e-7)
    s = IndexedSlices(tiny[:, None], [3, 3])
    (wide,) = unscaling.unscale_gradients([s], 2.0**15, np.float32)
    assert isinstance(wide, IndexedSlices) and wide.dtype == np.float32
    np.testing.assert_allclose(wide.values, [[1e-3 / 2**15]], rtol=1e-3)


def test_bfloat16() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    dense = np.array([1.0, -3.0, 1e38], bfloat16)
    (narrow,), (wide,) = (unscaling.unscale_gradients([dense], 4.0, d) for d in (None, np.float32))
    assert narrow.dtype == bfloat16 and wide.dtype == np.float32  # type: ignore[union-attr]
    np.testing.assert_array_equal(wide, dense.astype(np.float32) / 4)
    np.testing.assert_array_equal(narrow, (dense.astype(np.float32) / 4).astype(bfloat16))
    assert unscaling.all_finite([dense]) and not unscaling.all_finite(
        [np.array([1.0, np.nan], bfloat16)]
    )
    assert not unscaling.all_finite([np.array([-np.inf], bfloat16)])
    scaled = unscaling.scale_loss(dense, 2.0)
    assert scaled.dtype == bfloat16 and float(scaled[1]) == -6.0


def test_sum_of_repeated_rows_beyond_float16() -> None:
    """pytorch/pytorch PR#36786 (issue #35810): each value is finite, their sum is not."""
    s = IndexedSlices(np.full((2, 1), 60000, np.float16), [0, 0], (1, 1))
    (unscaled,) = unscaling.unscale_gradients([s], 1024.0)
    assert isinstance(unscaled, IndexedSlices)
    assert unscaled.dtype == np.float16
    np.testing.assert_array_equal(unscaled.values, [[117.1875]])
    assert unscaling.all_finite([unscaled])
    # If they reach the wrapper without having been unscaled, the step is skipped.
    v = Variable(np.zeros((1, 1), np.float32), name="v")
    opt = MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(1.0), "dynamic")
    opt.apply_gradients([(s, v)])
    assert v.item() == 0.0 and opt.loss_scale() == 2.0**14


# ---------------------------------------------------------------------- the wrapper


def test_golden_wrapper() -> None:
    """Momentum inside the wrapper: neither variable, slot nor step moves in a bad step."""
    var = Variable(GOLDEN["wrapped/var"][0], name="var")
    step = Variable(np.int64(0), trainable=False, name="step")
    momentum = MomentumOptimizer(1.0, 0.5)
    case = CASES["wrapped"]
    scale = ls.DynamicLossScale(
        case["initial_loss_scale"], case["increment_period"], case["multiplier"]
    )
    opt = MixedPrecisionLossScaleOptimizer(momentum, scale)
    for k, bad in enumerate(GOLDEN["wrapped/bad"]):
        factor = np.float32(np.nan if bad else 3.0)
        opt.minimize(lambda factor=factor: np.sum(factor * var), global_step=step)
        np.testing.assert_array_equal(var.numpy(), GOLDEN["wrapped/var"][k + 1])
        assert scale() == GOLDEN["wrapped/scale"][k + 1]
        assert step.item() == GOLDEN["wrapped/global_step"][k + 1]
        slot = momentum.get_slot(var, "momentum")
        np.testing.assert_array_equal(slot, GOLDEN["wrapped/momentum"][k + 1])
    assert scale.skipped_steps == 2


@pytest.mark.parametrize("gate", [0, 1, 2])
def test_incoming_gradient_is_scaled(gate: int) -> None:
    from fastopt.autodiff import defvjp, primitive

    seen = []

    @primitive
    def watched(x: Any) -> Any:
        return np.array(x)

    def pull(ans: Any, x: Any) -> Any:
        def vjp(g: Any) -> Any:
            seen.append(float(g))
            return g

        return vjp

    defvjp(watched, pull)
    v = Variable(np.float32(5.0), name="v")
    opt = MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(2.0), 10)
    opt.minimize(lambda: watched(v), gate_gradients=gate)
    assert seen == [10.0] and v.item() == 3.0
    dynamic = MixedPrecisionLossScaleOptimizer(
        GradientDescentOptimizer(2.0), ls.DynamicLossScale(2.0, 1)
    )
    for _ in range(2):
        dynamic.minimize(lambda: watched(v), gate_gradients=gate)
    assert seen == [10.0, 2.0, 4.0] and v.item() == -1.0
    assert dynamic.loss_scale() == 8.0


@pytest.mark.parametrize("gate", [0, 1, 2])
def test_one_bad_gradient_skips_all_variables(gate: int) -> None:
    a, b = Variable(np.ones(2), name="a"), Variable(np.ones((4, 2)), name="b")
    step = Variable(np.int64(7), trainable=False, name="step")
    adam = AdamOptimizer(0.1)
    opt = MixedPrecisionLossScaleOptimizer(adam, ls.DynamicLossScale(4.0))
    opt.minimize(lambda: np.sum(a) + np.sum(b[[1, 3]]), gate_gradients=gate, global_step=step)
    before = [x.numpy() for x in (a, b, *adam.variables())]
    bad = np.array([np.inf, 1.0])
    done = opt.minimize(
        lambda: np.sum(a * bad) + np.sum(b[[1, 3]]), gate_gradients=gate, global_step=step
    )
    assert done.variables == () and done.step == 8 and step.item() == 8
    for x, y in zip((a, b, *adam.variables()), before, strict=True):
        np.testing.assert_array_equal(x, y)
    assert opt.loss_scale() == 2.0


def test_fixed_scale_applies_nan() -> None:
    v = Variable(np.ones(2), name="v")
    opt = MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(1.0), 8.0)
    opt.apply_gradients([(np.array([np.nan, 1.0]), v)])
    np.testing.assert_array_equal(v, [np.nan, 0.0])


def test_none_is_passed_over() -> None:
    """tensorflow/tensorflow#31956, PR#27655, PR#27898: ValueError because of None."""
    v1, v2 = Variable(np.ones(2), name="v1"), Variable(np.ones(2), name="v2")
    opt = MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(1.0), ls.DynamicLossScale(2, 1))
    opt.apply_gradients([(None, v1), (np.ones(2), v2)])
    np.testing.assert_array_equal(v1, [1.0, 1.0])
    np.testing.assert_array_equal(v2, [0.0, 0.0])
    assert opt.loss_scale() == 4.0
    pairs = opt.compute_gradients(lambda: np.sum(v2), [v1, v2])
    assert pairs[0][0] is None and pairs[1][1] is v2
    np.testing.assert_array_equal(pairs[1][0], [1.0, 1.0])


def test_failed_calls_change_nothing() -> None:
    v, w = Variable(np.ones(2), name="v"), Variable(np.ones(2), name="w")
    scale = ls.DynamicLossScale(2.0, 1)
    opt = MixedPrecisionLossScaleOptimizer(MomentumOptimizer(1.0, 0.5), scale)
    failing: list[tuple[Any, type[Exception], str]] = [
        ([(None, v), (None, w)], ValueError, "No gradients provided for any variable"),
        ([], ValueError, "No variables provided"),
        ([(np.ones(2), v), (np.ones(3), w)], ValueError, "shape"),
        ([(np.ones(2), v), ("g", w)], TypeError, "real numbers"),
        ([(np.ones(2), v), (np.ones(2),)], ValueError, "pair"),
        (3, TypeError, "iterable"),
    ]
    for pairs, error, message in failing:
        with pytest.raises(error, match=message):
            opt.apply_gradients(pairs)
        assert scale() == 2.0 and good_steps(scale) == 0
        np.testing.assert_array_equal(v, [1.0, 1.0])
    opt.apply_gradients(iter([(np.ones(2), v)]))  # read once
    np.testing.assert_array_equal(v, [0.0, 0.0])


def test_own_loss_scale() -> None:
    class EverySecond(ls.LossScale):
        calls = 0

        def __call__(self) -> np.float32:
            return np.float32(2.0)

        def update(self, grads: Any) -> tuple[None, bool]:
            self.calls += 1
            return None, self.calls % 2 == 0

        def get_config(self) -> dict[str, Any]:
            return {}

    v = Variable(np.float64(0.0), name="v")
    opt = MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(1.0), EverySecond())
    for _ in range(4):
        opt.minimize(lambda: v * 1.0)
    assert v.item() == -2.0


def test_nothing_is_scaled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """tensorflow/tensorflow, keras: a loss scale around a loss scale is refused there, too."""
    inner = MixedPrecisionLossScaleOptimizer(AdamOptimizer(0.1), 8.0)
    for scaling in (AdamOptimizer(0.1, loss_scale=2.0), inner):
        with pytest.raises(ValueError, match="opt must not scale the loss itself, as <"):
            MixedPrecisionLossScaleOptimizer(scaling, 4.0)
    monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING", "1")
    with pytest.raises(ValueError, match="would be scaled twice"):
        MixedPrecisionLossScaleOptimizer(AdamOptimizer(0.1), 4.0)


def test_wrapper_is_an_optimizer() -> None:
    v = Variable(np.ones(2), name="v")
    momentum = MomentumOptimizer(1.0, 0.5, use_locking=True, name="M")
    opt = MixedPrecisionLossScaleOptimizer(momentum, "dynamic")
    assert opt.get_name() == "M"
    done = opt.apply_gradients([(np.ones(2), v)], name="step")
    assert done.name == "step-wrapped"
    assert opt.get_slot(v, "momentum") is None and opt.get_slot_names() == []
    assert momentum.get_slot_names() == ["momentum"]
    assert [x is y for x, y in zip(opt.variables(), momentum.variables(), strict=False)] == [True]
    assert opt.variables()[1:] == opt.loss_scale.variables()
    for hook in ("_apply_dense", "_apply_sparse", "_apply_sparse_duplicate_indices"):
        with pytest.raises(RuntimeError, match="the wrapped optimizer does"):
            getattr(opt, hook)(np.ones(2), v)
    for hook in ("_resource_apply_sparse", "_resource_apply_sparse_duplicate_indices"):
        with pytest.raises(RuntimeError, match="the wrapped optimizer does"):
            getattr(opt, hook)(np.ones(2), v, np.array([0]))
    with pytest.raises(ValueError, match="opt must be an Optimizer, got 3"):
        MixedPrecisionLossScaleOptimizer(3, "dynamic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be None"):
        MixedPrecisionLossScaleOptimizer(momentum, None)
    with pytest.raises(ValueError, match="a loss scale must be"):
        MixedPrecisionLossScaleOptimizer(momentum, "twice")
    other = copy.deepcopy(opt)
    other.apply_gradients([(BAD.astype(float), v)])
    assert other.loss_scale() == 2.0**14 and opt.loss_scale() == 2.0**15


@pytest.mark.parametrize("widen", [False, True])
@pytest.mark.parametrize("dtype", [None, np.float32, np.float16])
def test_verdict_of_unscaling_is_that_of_looking(dtype: Any, widen: bool) -> None:
    """One pass tells the same as two: also where only a sum or only the narrowed number is not."""
    top = float(np.finfo(np.float32).max)
    nests: list[Any] = [
        [],
        [None, np.ones(3, np.float32)],
        [np.full(40_000, 3.0, np.float16), np.ones((2, 3))],
        [np.array([1.0, math.nan])],
        [np.array([1.0, -math.inf], np.float16)],
        [np.array([1e5], np.float32)],
        [np.array([1.0], np.longdouble)],
        [np.array([math.inf], np.longdouble)],
        [IndexedSlices(np.full((2, 1), top, np.float32), [3, 3])],
        [IndexedSlices(np.full((2, 1), top, np.float32), [3, 4])],
        [IndexedSlices(np.full((2, 1), 5e4, np.float16), [3, 3])],
        [[1.0, 2.0], np.float32(3.0)],
        [[1.0, math.inf], np.ones(2)],
    ]
    for nest in nests:
        for scale in (1.0, 0.5):
            gradients, finite = unscaling.unscaled(nest, scale, dtype, widen=widen)
            assert finite is unscaling.all_finite(gradients)
            again = unscaling.unscale_gradients(nest, scale, dtype, widen=widen)
            for one, two in zip(gradients, again, strict=True):
                assert (one is None) == (two is None)


def test_minimize_looks_at_gradients_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_second_look(gradients: Any) -> bool:
        assert not gradients
        return True

    w = Variable(np.array([1.0, 2.0], np.float32), name="w")
    opt = GradientDescentOptimizer(0.5, loss_scale=ls.DynamicLossScale(4.0))
    monkeypatch.setattr("fastopt.loss_scale.all_finite", no_second_look)
    monkeypatch.setattr("fastopt._unscaling.all_finite", no_second_look)
    opt.minimize(lambda: np.sum(w * w))
    np.testing.assert_array_equal(w.numpy(), [0.0, 0.0])
    w.assign([math.inf, 1.0])
    done = opt.minimize(lambda: np.sum(w * w))
    assert not done.variables and opt._loss_scale() == 2.0


def test_a_subclass_may_change_gradients_after_the_look() -> None:
    class Clean(GradientDescentOptimizer):
        def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
            pairs = super().compute_gradients(*args, **kwargs)
            return [(np.nan_to_num(g, posinf=1.0), var) for g, var in pairs]

    w = Variable(np.array([math.inf], np.float32), name="w")
    opt = Clean(1.0, loss_scale=ls.DynamicLossScale(4.0))
    assert opt.minimize(lambda: np.sum(w * 1.0)).variables
