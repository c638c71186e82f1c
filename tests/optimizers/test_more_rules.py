"""What is particular to one rule: where it starts, where its numbers end, what it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@every_dtype
def test_the_centered_variance_is_clamped(dtype: Any) -> None:
    """A constant gradient has no variance; rounding must not make it negative, nor NaN."""
    rng = np.random.default_rng(1)
    gradient = (1e3 * rng.normal(size=2000)).astype(dtype)
    var = fo.Variable(np.zeros(2000, dtype))
    optimizer = fo.RMSPropOptimizer(0.1, decay=0.5, epsilon=1e-10, centered=True)
    clamped = 0
    for _ in range(60):
        optimizer.apply_gradients([(gradient, var)])
        rms, mg = (optimizer.get_slot(var, name).numpy() for name in ("rms", "mg"))
        clamped += np.count_nonzero(rms < mg * mg)
    assert np.isfinite(var.numpy()).all()
    assert clamped > 0  # without the clamp some of these were NaN


def test_a_plain_rmsprop_has_no_averages_of_gradients() -> None:
    var = fo.Variable(np.ones(2))
    optimizer = fo.RMSPropOptimizer(0.1)
    optimizer.apply_gradients([(np.ones(2), var)])
    assert optimizer.get_slot(var, "mg") is None
    assert optimizer.get_slot_names() == ["momentum", "rms"]


def test_dual_averaging_reads_the_counter_and_does_not_advance_it() -> None:
    step = fo.Variable(np.int64(6), trainable=False)
    var, other = fo.Variable(np.ones(1)), fo.Variable(np.ones(1))
    optimizer = fo.AdagradDAOptimizer(1.0, step, 1.0, l1_regularization_strength=0.25)
    optimizer.apply_gradients([(np.full(1, 2.0), var)])
    assert step.numpy() == 6
    np.testing.assert_allclose(var.numpy(), -(2.0 - 7 * 0.25) / np.sqrt(5), rtol=1e-15)
    optimizer.apply_gradients([(np.full(1, 2.0), other)], global_step=step)
    assert step.numpy() == 7
    assert other.numpy() == var.numpy()  # the number before this call's increment, plus one
    optimizer.apply_gradients([(np.full(1, 2.0), var)], global_step=step)
    np.testing.assert_allclose(var.numpy(), -(4.0 - 8 * 0.25) / np.sqrt(9), rtol=1e-15)


def test_dual_averaging_forgets_the_initial_weight_of_touched_rows_only() -> None:
    step = fo.Variable(np.int64(0), trainable=False)
    table = fo.Variable(np.full((3, 2), 5.0))
    optimizer = fo.AdagradDAOptimizer(1.0, step)
    optimizer.apply_gradients([(fo.IndexedSlices(np.zeros((1, 2)), [1]), table)])
    np.testing.assert_array_equal(table.numpy(), [[5, 5], [0, 0], [5, 5]])


@every_dtype
def test_a_negative_l1_counts_as_zero(dtype: Any) -> None:
    step = fo.Variable(np.int64(0), trainable=False)
    for make in (
        lambda l1: fo.ProximalGradientDescentOptimizer(0.1, l1_regularization_strength=l1),
        lambda l1: fo.AdagradDAOptimizer(0.1, step, l1_regularization_strength=l1),
    ):
        results = []
        for l1 in (0.0, -0.5):
            var = fo.Variable(np.linspace(-1, 1, 5).astype(dtype))
            make(l1).apply_gradients([(np.linspace(2, 1, 5), var)])
            results.append(var.numpy().tobytes())
        assert results[0] == results[1]


@every_dtype
def test_proximal_steps_make_exact_zeros_and_shrink_listed_rows_only(dtype: Any) -> None:
    start = np.array([[0.3, -0.3], [1.0, -1.0], [0.3, -0.3]], dtype)
    for optimizer in (
        fo.ProximalGradientDescentOptimizer(1.0, l1_regularization_strength=0.5),
        fo.ProximalAdagradOptimizer(
            1.0, initial_accumulator_value=1.0, l1_regularization_strength=0.5
        ),
    ):
        table = fo.Variable(start)
        slices = fo.IndexedSlices(np.zeros((2, 2), dtype), [0, 1])
        optimizer.apply_gradients([(slices, table)])
        np.testing.assert_array_equal(table.numpy(), [[0, 0], [0.5, -0.5], start[2]])
