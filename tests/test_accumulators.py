"""Accumulators, and the optimizer that accumulates."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from fastopt._sums import GradientSum
from fastopt.accumulators import ConditionalAccumulator, SparseConditionalAccumulator
from fastopt.autodiff import Tensor
from fastopt.clip import clip_by_global_norm
from fastopt.gradient_accumulation import GradientAccumulation
from fastopt.indexed_slices import IndexedSlices
from fastopt.loss_scale_optimizer import MixedPrecisionLossScaleOptimizer
from fastopt.optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
)
from fastopt.variable import Variable

# Long enough for another thread to run on a busy machine; only failures wait for it.
PATIENCE = 30.0

# ---------------------------------------------------------------------- dense


@pytest.mark.parametrize(("reduction", "expected"), [("MEAN", 15.0), ("SUM", 30.0)])
def test_mean_and_sum(reduction: str, expected: float) -> None:
    acc = ConditionalAccumulator(np.float32, reduction_type=reduction)
    for local_step in (0, 1):
        assert acc.apply_grad(10.0, local_step) and acc.apply_grad(np.float64(20.0), local_step)
        assert acc.num_accumulated() == 2
        taken = acc.take_grad(1)
        assert taken == expected and taken.dtype == np.float32 and taken.shape == ()
        assert acc.num_accumulated() == 0


def test_extra_gradients_count() -> None:
    """tensorflow/tensorflow#24005: unclear what extra gradients do."""
    acc = ConditionalAccumulator(np.float64)
    for gradient in (1.0, 2.0, 3.0, 4.0):
        acc.apply_grad([gradient])
    assert acc.take_grad(3) == [2.5]
    assert acc.num_accumulated() == 0
    acc.apply_grad([7.0], local_step=1)
    assert acc.take_grad(1) == [7.0]


def test_stale_gradients_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    acc = ConditionalAccumulator(np.float64)
    for gradient in ([1.0, 2.0], [3.0, 5.0]):
        acc.apply_grad(gradient)
    np.testing.assert_array_equal(acc.take_grad(1), [2.0, 3.5])
    assert not acc.apply_grad([9.0, 9.0], local_step=0)
    assert acc.apply_grad([1.0, 1.0], local_step=100)  # the future is accepted
    assert acc.num_accumulated() == 1
    for s in range(1000, 1005):
        acc = ConditionalAccumulator(np.float64)
        acc.set_global_step(Variable(np.int64(s), trainable=False))
        kept = [acc.apply_grad(float(k), local_step=k) for k in range(1000, 1005)]
        assert kept == [k >= s for k in range(1000, 1005)]
        assert acc.take_grad(1) == np.mean(np.arange(s, 1005))
    with caplog.at_level(logging.WARNING):
        acc.apply_grad(3.0, local_step=2000)
        acc.set_global_step(5)
    assert "goes back from 1005 to 5" in caplog.text
    assert acc.num_accumulated() == 1 and acc.apply_grad(3.0, local_step=5)


def test_a_gradient_that_does_not_fit_is_an_error_however_old() -> None:
    """As in TensorFlow; it would be one as soon as the worker is in time."""
    dense = ConditionalAccumulator(np.float32, shape=(2, 1))
    dense.set_global_step(5)
    with pytest.raises(ValueError, match=r"\(3, 2\) does not fit shape \(2, 1\)"):
        dense.apply_grad(np.ones((3, 2), np.float32), local_step=0)
    slices = SparseConditionalAccumulator(np.float32, shape=(4, 1))
    slices.set_global_step(5)
    with pytest.raises(IndexError, match="5"):
        slices.apply_grad([5], np.ones((1, 1), np.float32), local_step=0)
    assert dense.num_accumulated() == slices.num_accumulated() == 0


def test_gradients_are_copied_and_summed_wide() -> None:
    gradient = np.array([1.0, 2.0])
    acc = ConditionalAccumulator(np.float64, shape=(None,))
    acc.apply_grad(gradient)
    gradient[...] = 99.0
    taken = acc.take_grad(1)
    np.testing.assert_array_equal(taken, [1.0, 2.0])
    half = ConditionalAccumulator(np.float16)
    for _ in range(4):
        half.apply_grad(np.array([6e4], np.float16))
    assert half.take_grad(4) == np.float16(6e4)  # whose sum is beyond float16
    assert half.dtype == np.float16


def test_dense_errors() -> None:
    acc = ConditionalAccumulator(np.float32, shape=(2, None), name="acc")
    for bad in (np.zeros(2), np.zeros((3, 2)), np.zeros((2, 2, 1))):
        with pytest.raises(ValueError, match=r"acc: a gradient of shape .* fit shape \(2, None\)"):
            acc.apply_grad(bad)
    acc.apply_grad(np.zeros((2, 5)))
    with pytest.raises(ValueError, match=r"does not fit shape \(2, 5\)"):
        acc.apply_grad(np.zeros((2, 4)))
    assert acc.num_accumulated() == 1
    with pytest.raises(TypeError, match="grad must be a dense array"):
        acc.apply_grad(IndexedSlices(np.zeros((1, 5)), [0]))
    with pytest.raises(TypeError, match="grad must be a dense array"):
        acc.apply_grad(None)
    for count in (0, -1):
        with pytest.raises(ValueError, match="num_required must be at least 1"):
            acc.take_grad(count)
    for count in (1.0, True, None, "1"):
        with pytest.raises(TypeError, match="num_required must be an integer"):
            acc.take_grad(count)
    with pytest.raises(TypeError, match="local_step must be an integer"):
        acc.apply_grad(np.zeros((2, 5)), local_step=0.5)
    with pytest.raises(TypeError, match="new_global_step must be an integer"):
        acc.set_global_step("1")
    assert repr(acc) == "<ConditionalAccumulator 'acc': 1 gradients, step 0>"
    assert acc.name == "acc"
    with pytest.raises(ValueError, match="reduction_type must be 'MEAN' or 'SUM', got 'MAX'"):
        ConditionalAccumulator(np.float32, reduction_type="MAX")
    for dtype in (np.int32, np.complex64, bool):
        with pytest.raises(TypeError, match="dtype must be a floating dtype"):
            ConditionalAccumulator(dtype)
    with pytest.raises(TypeError, match="shape must be a sequence of integers or None"):
        ConditionalAccumulator(np.float32, shape=("a",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative dimension"):
        ConditionalAccumulator(np.float32, shape=(-2,))
    with pytest.raises(ValueError, match="has no rows"):
        SparseConditionalAccumulator(np.float32, shape=())


def test_timeout_changes_nothing() -> None:
    acc = ConditionalAccumulator(np.float64, name="acc")
    acc.apply_grad(1.0)
    with pytest.raises(TimeoutError, match="'acc' got 1 of 2 gradients within 0.01 s"):
        acc.take_grad(2, timeout=0.01)
    acc.apply_grad(3.0)
    assert acc.take_grad(2, timeout=0.0) == 2.0


def test_take_waits_for_other_threads() -> None:
    acc = ConditionalAccumulator(np.float64)
    taken: list[float] = []
    taker = threading.Thread(target=lambda: taken.append(acc.take_grad(20, timeout=PATIENCE)))
    taker.start()
    workers = [threading.Thread(target=acc.apply_grad, args=(float(k),)) for k in range(20)]
    for worker in workers:
        worker.start()
    for thread in [*workers, taker]:
        thread.join(PATIENCE)
    assert taken == [9.5]


def test_close_ends_waiting() -> None:
    acc = ConditionalAccumulator(np.float64, name="acc")
    errors: list[BaseException] = []
    started = threading.Event()

    def wait() -> None:
        started.set()
        try:
            acc.take_grad(1)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait(PATIENCE)
    acc.close()
    thread.join(PATIENCE)
    assert not thread.is_alive() and "accumulator 'acc' is closed" in str(errors[0])
    with pytest.raises(RuntimeError, match="closed"):
        acc.apply_grad(1.0)
    with pytest.raises(RuntimeError, match="closed"):
        acc.take_grad(1)


# ---------------------------------------------------------------------- sparse


def test_mean_of_rows_is_over_the_gradients_that_list_them() -> None:
    for reduction, expected in (
        ("MEAN", [[0.5, 0.5], [0.0, 2.0], [3.0, 0.0]]),
        ("SUM", [[1.0, 1.0], [0.0, 2.0], [3.0, 0.0]]),
    ):
        acc = SparseConditionalAccumulator(np.float32, (None, 2), reduction_type=reduction)
        acc.apply_grad([0, 1], [[1, 0], [0, 2]])
        acc.apply_grad([0, 2], [[0, 1], [3, 0]], [-1, 2])
        indices, values, shape = acc.take_grad(1)
        assert indices.dtype == shape.dtype == np.int64 and values.dtype == np.float32
        np.testing.assert_array_equal(indices, [0, 1, 2])
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(shape, [-1, 2])


def test_unsorted_and_repeated_rows() -> None:
    """TensorFlow leaves repeated rows unmerged, and expects rows to be sorted."""
    acc = SparseConditionalAccumulator(np.float64, (6, 1))
    acc.apply_indexed_slices_grad(IndexedSlices([[1.0], [2.0], [4.0]], [5, 0, 5]))
    acc.apply_indexed_slices_grad(scipy.sparse.csr_array(([7.0], [0], [0, 1, 1, 1, 1, 1, 1])))
    taken = acc.take_indexed_slices_grad(2)
    np.testing.assert_array_equal(taken.indices, [0, 5])
    np.testing.assert_array_equal(taken.values, [[4.5], [5.0]])
    assert taken.dense_shape == (6, 1) and taken.indices.dtype == np.int64


def test_gradients_without_rows_count() -> None:
    acc = SparseConditionalAccumulator(np.float64, (6, 1))
    for _ in range(2):
        assert acc.apply_grad(np.zeros(0, np.int64), np.zeros((0, 1)))
    assert acc.num_accumulated() == 2
    taken = acc.take_indexed_slices_grad(2)
    assert len(taken) == 0 and taken.values.shape == (0, 1)
    assert not acc.apply_grad([0], [[1.0]], local_step=0)
    assert acc.apply_grad([0], [[1.0]], local_step=1)


def test_sparse_errors_change_nothing() -> None:
    acc = SparseConditionalAccumulator(np.float32, (4, 2), name="acc")
    for indices, values, shape, error, message in (
        ([[0]], [[1, 2]], None, ValueError, "one-dimensional"),
        ([0], 1.0, None, ValueError, "at least one axis"),
        ([0, 1], [[1, 2]], None, ValueError, "2 indices"),
        ([0], [[1, 2, 3]], None, ValueError, r"does not fit shape \(4, 2\)"),
        ([0], [[[1, 2]]], None, ValueError, r"does not fit shape \(4, 2\)"),
        ([4], [[1, 2]], None, IndexError, "index 4 at position 0 is out of range for 4 rows"),
        ([-1], [[1, 2]], None, IndexError, "index -1"),
        ([0], [[1, 2]], [5, 2], ValueError, r"does not fit shape \(4, 2\)"),
        ([0], [[1, 2]], [4, 3], ValueError, "grad_shape"),
        ([0], [[1j, 2]], None, TypeError, "real numbers"),
    ):
        with pytest.raises(error, match=message):
            acc.apply_grad(indices, values, shape)
    assert acc.num_accumulated() == 0
    with pytest.raises(TypeError, match="grad must be IndexedSlices"):
        acc.apply_indexed_slices_grad(np.zeros((4, 2)))
    assert acc.apply_grad([3], [[1, 2]], [4, 2])
    unknown = SparseConditionalAccumulator(np.float32)
    unknown.apply_grad([7], [[1, 2]])
    with pytest.raises(ValueError, match=r"does not fit shape \(None, 2\)"):
        unknown.apply_grad([7], [[1, 2, 3]])


@given(data=st.data())
def test_sparse_equals_dense(data: Any) -> None:
    """Over many gradients, with merging in between."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n = data.draw(st.integers(1, 12))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    dense, counts = np.zeros((9, 3)), np.zeros((9, 1))
    acc = SparseConditionalAccumulator(dtype, (9, 3))
    for _ in range(n):
        ids = rng.integers(0, 9, rng.integers(0, 6))
        values = rng.integers(-8, 8, (ids.size, 3)).astype(dtype)  # sums are exact
        acc.apply_indexed_slices_grad(IndexedSlices(values, ids.astype(np.int32)))
        np.add.at(dense, ids, values)
        counts[np.unique(ids)] += 1
        if acc._sum is not None:
            acc._sum._limit = min(acc._sum._limit, data.draw(st.integers(0, 20)))
    taken = acc.take_indexed_slices_grad(n)
    np.testing.assert_array_equal(taken.indices, np.flatnonzero(counts))
    np.testing.assert_allclose(
        taken.to_dense(), dense / np.maximum(counts, 1), rtol=np.finfo(dtype).eps
    )


def test_merging_bounds_memory() -> None:
    acc = SparseConditionalAccumulator(np.float32, (1000, 4))
    values, ids = np.ones((1000, 4), np.float32), np.arange(1000)
    for _ in range(100):
        acc.apply_indexed_slices_grad(IndexedSlices(values, ids))
    assert acc._sum is not None
    assert sum(len(term) for term in acc._sum._terms) <= 5096
    np.testing.assert_array_equal(acc.take_indexed_slices_grad(100).values, values)


# ---------------------------------------------------------------------- sums of one variable


@given(kinds=st.lists(st.sampled_from(["dense", "sparse"]), min_size=1, max_size=6))
def test_gradient_sum(kinds: list[str]) -> None:
    rng = np.random.default_rng(len(kinds))
    total, expected = GradientSum((5, 2)), np.zeros((5, 2))
    for kind in kinds:
        if kind == "dense":
            dense = rng.integers(-4, 4, (5, 2)).astype(np.float32)
            total.add(dense)
            expected += dense
            dense[...] = np.nan
        else:
            values = rng.integers(-4, 4, (3, 2)).astype(np.float32)
            ids = np.array([4, 0, 4], np.int32)
            total.add(IndexedSlices(values, ids))
            np.add.at(expected, ids, values)
            values[...] = np.nan
            ids[...] = 1
    mean = total.mean(4)
    assert mean.dtype == np.float32
    assert isinstance(mean, np.ndarray) == ("dense" in kinds)
    if isinstance(mean, IndexedSlices):
        np.testing.assert_array_equal(mean.indices, [0, 4])
        mean = mean.to_dense()
    np.testing.assert_array_equal(mean, expected / 4)


# ---------------------------------------------------------------------- GradientAccumulation


def clipped(limit: float, calls: list[int]) -> Any:
    def transform(pairs: list[Any]) -> Any:
        calls.append(len(pairs))
        gradients, _ = clip_by_global_norm([g for g, _ in pairs], limit)
        return zip(gradients, [v for _, v in pairs], strict=True)

    return transform


@pytest.mark.parametrize("sparse", [False, True])
def test_one_step_for_three_micro_batches(sparse: bool) -> None:
    """keras-team/keras#19990, PR#19998; andreped/GradientAccumulator#53.

    Decay, clipping and the step count ran in every micro-batch.
    """
    w = Variable(np.array([[1.0]]), name="w")
    step = Variable(np.int64(0), trainable=False, name="step")
    calls: list[int] = []
    adam = AdamOptimizer(0.01)
    opt = GradientAccumulation(adam, 3, transform=clipped(10.0, calls))
    for k, gradient in enumerate((1.0, 2.0, 3.0)):
        assert opt.num_accumulated == k
        g: Any = np.array([[gradient]])
        if sparse:
            g = IndexedSlices(g, [0], (1, 1))
        done = opt.apply_gradients([(g, w)], global_step=step)
        assert (done.variables == ()) == (k < 2)
        assert done.step == step.item() == (1 if k == 2 else 0)
        assert w.item() == (1.0 if k < 2 else pytest.approx(0.99, abs=1e-8))
    assert (done.sparse_rows, done.dense_parameters) == ((1, 0) if sparse else (0, 1))
    assert calls == [1]
    m = opt.get_slot(w, "m")
    assert m is adam.get_slot(w, "m") and m is not None
    assert m.item() == pytest.approx(0.2)  # 0.1 times the mean, 2
    assert opt.get_slot_names() == ["m", "v"] and opt.variables() == adam.variables()
    beta1_power = adam._get_non_slot_variable("beta1_power")
    assert beta1_power is None or beta1_power.item() == pytest.approx(0.81)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GradientDescentOptimizer(0.5),
        lambda: MomentumOptimizer(0.5, 0.9),
        lambda: AdagradOptimizer(0.5),
        lambda: AdamOptimizer(0.5),
    ],
)
def test_equals_the_mean_gradient(make: Any) -> None:
    """Dense, sparse and absent gradients; two steps."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(2, 6, 3))
    pair = [Variable(x, name="x") for x in start]
    other = [Variable(x, name="y") for x in start]
    whole, parts = make(), GradientAccumulation(make(), 4)
    assert parts.num_micro_batches == 4
    for _ in range(2):
        dense = rng.normal(size=(4, 6, 3))
        ids = rng.integers(0, 6, (4, 5))
        values = rng.normal(size=(4, 5, 3))
        for k in range(4):
            sparse = None if k == 2 else IndexedSlices(values[k], ids[k], (6, 3))
            parts.apply_gradients([(dense[k], other[0]), (sparse, other[1])])
        used = [0, 1, 3]
        joined = IndexedSlices(values[used].reshape(-1, 3) / 4, ids[used].reshape(-1), (6, 3))
        whole.apply_gradients([(dense.mean(axis=0), pair[0]), (joined, pair[1])])
        for a, b in zip(pair, other, strict=True):
            # sums of four numbers in another order, through two steps
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gate", [0, 1, 2])
def test_minimize_and_flush(gate: int) -> None:
    v, step = Variable(np.float64(0.0), name="v"), Variable(np.int64(0), trainable=False)
    opt = GradientAccumulation(GradientDescentOptimizer(1.0), 2)
    for k in (1.0, 3.0, 5.0):
        opt.minimize(lambda k=k: k * v, gate_gradients=gate, global_step=step)
    assert v.item() == -2.0 and step.item() == 1 and opt.num_accumulated == 1
    assert opt.flush(step).step == 2
    assert v.item() == -7.0 and opt.num_accumulated == 0
    assert opt.flush(step, name="again").variables == ()
    assert v.item() == -7.0 and step.item() == 2


def test_absent_everywhere_is_left_alone() -> None:
    a, b = Variable(np.ones(2), name="a"), Variable(np.ones(2), name="b")
    momentum = MomentumOptimizer(1.0, 0.9)
    opt = GradientAccumulation(momentum, 2)
    for _ in range(2):
        opt.apply_gradients([(np.ones(2), a), (None, b)])
    assert momentum.get_slot(b, "momentum") is None
    np.testing.assert_array_equal(b, np.ones(2))
    opt.apply_gradients([(np.ones(2), b)])
    del b  # a variable that is gone by the end of the step does not hold it up
    opt.apply_gradients([(np.ones(2), a)])
    np.testing.assert_allclose(a, [0 - 0.9 - 0.5] * 2)


def test_float16_micro_batches() -> None:
    v = Variable(np.zeros(1, np.float32), name="v")
    opt = GradientAccumulation(GradientDescentOptimizer(1.0), 4)
    for _ in range(4):
        opt.apply_gradients([(np.array([6e4], np.float16), v)])
    np.testing.assert_array_equal(v, [-np.float32(np.float16(6e4))])


def test_within_and_around_a_loss_scale() -> None:
    for wrap in (
        lambda: GradientAccumulation(
            MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(1.0), "dynamic"), 2
        ),
        lambda: MixedPrecisionLossScaleOptimizer(
            GradientAccumulation(GradientDescentOptimizer(1.0), 2), "dynamic"
        ),
    ):
        v, opt = Variable(np.float64(0.0), name="v"), wrap()
        for k in (1.0, 3.0):
            opt.minimize(lambda k=k, v=v: k * v)
        assert v.item() == -2.0


def test_failed_calls_change_nothing() -> None:
    v = Variable(np.zeros(2), name="v")
    fail = [True]

    def transform(pairs: list[Any]) -> list[Any]:
        if fail[0]:
            raise ZeroDivisionError
        return pairs

    opt = GradientAccumulation(GradientDescentOptimizer(1.0), 2, transform)
    opt.apply_gradients([(np.ones(2), v)])
    for pairs, step, error in (
        ([], None, ValueError),
        ([(None, v)], None, ValueError),
        ([(np.ones(3), v)], None, ValueError),
        ([(IndexedSlices(np.ones(1), [2]), v)], None, IndexError),
        ([(np.ones(2), Tensor(np.ones(2)))], None, NotImplementedError),
        ([(np.ones(2), Variable(np.arange(2)))], None, (ValueError, TypeError)),
        ([(np.ones(2), v)], 3, TypeError),
    ):
        with pytest.raises(error):
            opt.apply_gradients(pairs, global_step=step)
        assert opt.num_accumulated == 1
    with pytest.raises(ZeroDivisionError):
        opt.apply_gradients([(np.full(2, 3.0), v)])
    np.testing.assert_array_equal(v, [0.0, 0.0])
    fail[0] = False
    opt.flush()
    np.testing.assert_array_equal(v, [-2.0, -2.0])


def test_accumulation_arguments() -> None:
    sgd = GradientDescentOptimizer(1.0)
    with pytest.raises(ValueError, match="opt must be an Optimizer"):
        GradientAccumulation("sgd", 2)  # type: ignore[arg-type]
    for bad, error in ((0, ValueError), (2.5, ValueError), ("2", TypeError), (None, TypeError)):
        with pytest.raises(error, match="num_micro_batches must be"):
            GradientAccumulation(sgd, bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="transform must be callable"):
        GradientAccumulation(sgd, 2, transform=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [np.zeros(2, int), np.array([]), Variable(np.zeros((2, 2)))])
def test_several_numbers_are_no_integer(bad: Any) -> None:
    accumulator = ConditionalAccumulator(np.float32, (2,))
    with pytest.raises(TypeError, match="local_step must be an integer, got .*"):
        accumulator.apply_grad(np.ones(2), bad)
    with pytest.raises(TypeError, match="num_required must be an integer, got .*"):
        accumulator.take_grad(bad)
    with pytest.raises(TypeError, match="shape must be a sequence of integers or None, got .*"):
        ConditionalAccumulator(np.float32, [bad, 2])


@pytest.mark.parametrize("bad", ["spam", 3, [1], np.ones(2)])
def test_what_is_no_dtype_is_named(bad: Any) -> None:
    with pytest.raises(
        TypeError, match="ConditionalAccumulator: dtype must be a NumPy dtype, got "
    ):
        ConditionalAccumulator(bad)
