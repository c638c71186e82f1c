"""What went wrong elsewhere with numbers of 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._unscaling import unscale_gradients
from tests.half.support import F16, both
from tests.optimizer_db import Record, every_record, fresh_graph, state_of

__all__ = ["fresh_graph"]


@both()
def test_a_tiny_epsilon_keeps_weights_finite(half: Any) -> None:
    """google-deepmind/optax#1754, PR#1755, PR#1769, PR#1790: 1e-8 is 0 in float16; 0 / 0."""
    start = np.array([1, -2, 0.5], half)
    w = fo.Variable(start)
    table = fo.Variable(np.tile(start[:, None], (1, 2)))
    optimizer = fo.AdamOptimizer()
    for _ in range(3):
        zero_row = fo.IndexedSlices(np.zeros((1, 2), half), [1])
        optimizer.apply_gradients([(np.zeros(3, half), w), (zero_row, table)])
    assert w.numpy().tobytes() == start.tobytes()
    assert (table.numpy().astype(float) == start.astype(float)[:, None]).all()
    optimizer.apply_gradients([(np.full(3, 1e-4, half), w)])  # its square underflows in float16
    moved = w.numpy().astype(float) - start.astype(float)
    assert np.isfinite(moved).all()
    master = optimizer.get_slot(w, "master")
    assert master is not None
    # A constant gradient in the fourth call, after three of zero: m = 0.1 g, v = 1e-3 g ** 2.
    lr = 1e-3 * np.sqrt(1 - 0.999**4) / (1 - 0.9**4)
    g = float(half.type(1e-4))
    step = lr * 0.1 * g / (np.sqrt(1e-3) * g + 1e-8)
    np.testing.assert_allclose(master.numpy(), start.astype(float) - step, rtol=1e-6)


def test_a_sum_of_slices_beyond_float16() -> None:
    """pytorch/pytorch PR#36786, issue #35810: finite slices whose sum is not."""
    slices = fo.IndexedSlices(np.full((2, 1), 60000.0, np.float16), [0, 0])
    table = fo.Variable(np.zeros((3, 1), np.float16))
    scale = fo.FixedLossScale(1024)
    optimizer = fo.MixedPrecisionLossScaleOptimizer(fo.GradientDescentOptimizer(1.0), scale)
    # What the wrapper does with gradients that its own compute_gradients has scaled.
    unscaled = unscale_gradients([slices], 1024.0)
    optimizer.apply_gradients([(unscaled[0], table)])
    assert table.numpy()[0, 0] == np.float16(-117.1875)
    for gradient in (slices, slices * 0.5):
        fo.GradientDescentOptimizer(2.0**-10).apply_gradients([(gradient, table)])
        assert np.isfinite(table.numpy()).all()


@both()
def test_a_sum_in_minimize_that_overflows_is_skipped(half: Any) -> None:
    table = fo.Variable(np.ones((3, 1), half))
    optimizer = fo.AdamOptimizer(0.1, loss_scale=fo.DynamicLossScale(2.0**15))
    before = table.numpy().tobytes()

    def loss() -> Any:
        return np.sum(fo.embedding_lookup(table, [0, 0]) * half.type(3e4))

    with np.errstate(over="ignore"):
        optimizer.minimize(loss)
    if half == F16:
        assert table.numpy().tobytes() == before  # the gradient is infinite
        scale = next(v for v in optimizer.variables() if "current_loss_scale" in v.name)
        assert scale.numpy() == 2.0**14
    else:
        assert table.numpy()[0, 0] < 1
    assert np.isfinite(table.numpy().astype(float)).all()


@both()
def test_small_decay_adds_up(half: Any) -> None:
    """Nerogar/OneTrainer#996, pytorch/ao PR#1124, pytorch/pytorch#120376: 1 - 1e-4 is 1 again."""
    w = fo.Variable(np.ones((4, 1), half))
    optimizer = fo.AdamWOptimizer(weight_decay=1e-4, learning_rate=0.0, times_learning_rate=False)
    for step in range(1000):
        zero: Any = np.zeros((4, 1), half)
        if step % 2:
            zero = fo.IndexedSlices(zero[:1], [2])
        optimizer.apply_gradients([(zero, w)])
    expected = (1 - 1e-4) ** 1000
    master = optimizer.get_slot(w, "master")
    assert master is not None
    np.testing.assert_allclose(master.numpy(), expected, rtol=1e-5)  # 1000 roundings of 6e-8
    assert (w.numpy() == np.float32(expected).astype(half)).all()


@both()
def test_small_steps_add_up(half: Any) -> None:
    w = fo.Variable(np.ones(2, half))
    optimizer = fo.GradientDescentOptimizer(1e-5)
    for _ in range(10_000):
        optimizer.apply_gradients([(np.ones(2, half), w)])
    np.testing.assert_allclose(
        w.numpy().astype(float), 0.9, rtol=float(np.finfo(np.float16).eps) * 4
    )


@every_record()
@both()
def test_dtypes_that_differ(record: Record, half: Any) -> None:
    """tensorflow/tensorflow#113145, #69278, PR#113276: the process aborted."""
    v = fo.Variable(np.ones((3, 2), half), name="v")
    optimizer = record.make()
    before = state_of(optimizer, v)
    for bad in (np.ones((3, 2), np.complex64), np.ones((3, 2), bool)):
        with pytest.raises(TypeError, match="complex64|bool"):
            optimizer.apply_gradients([(bad, v)])
    assert state_of(optimizer, v) == before
    optimizer.apply_gradients([(np.ones((3, 2), np.float64), v)])
    optimizer.apply_gradients([(fo.IndexedSlices(np.ones((1, 2), np.float64), [1]), v)])
    assert v.dtype == half and np.isfinite(v.numpy().astype(float)).all()
