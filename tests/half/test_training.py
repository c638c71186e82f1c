"""16-bit variables in whole programs: losses, look-ups, scales, constraints, checkpoints."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fastopt as fo
from tests.half.support import both
from tests.optimizer_db import Record, every_record, fresh_graph

__all__ = ["fresh_graph"]

X = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


def losses() -> dict[str, Any]:
    """Losses of a matrix (6, 4), positive numbers below 1."""
    return {
        "sum of squares": lambda w: np.sum(w * w),
        "mean": lambda w: np.mean(w),
        "product": lambda w: np.sum((X @ w) ** 2),
        "einsum": lambda w: np.sum(np.einsum("ij,jk->ik", X, w)),
        "exp": lambda w: np.sum(np.exp(w)),
        "slice": lambda w: np.sum(w[1:3] * 2.0),
        "concatenate": lambda w: np.sum(np.concatenate([w, w])),
        "astype": lambda w: np.sum(w.astype(np.float32) ** 2),
        "relu": lambda w: np.sum(fo.nn.relu(w)),
        "sigmoid": lambda w: np.sum(fo.nn.sigmoid(w)),
        "softmax": lambda w: np.sum(fo.nn.softmax(w) ** 2),
        "cross entropy": lambda w: np.sum(
            fo.nn.sigmoid_cross_entropy_with_logits(labels=np.ones((6, 4)), logits=w)
        ),
        "sparse cross entropy": lambda w: np.sum(
            fo.nn.sparse_softmax_cross_entropy_with_logits(labels=np.arange(6) % 4, logits=w)
        ),
        "l2": lambda w: fo.nn.l2_loss(w),
        "regularizer": lambda w: fo.regularizers.l1_l2(0.5, 0.25)(w),
        "look-up": lambda w: np.sum(fo.embedding_lookup(w, [1, 2, 1]) ** 2),
        "clipped look-up": lambda w: np.sum(fo.embedding_lookup(w, [1, 2, 1], max_norm=0.5)),
        "pooled": lambda w: np.sum(fo.embedding_lookup_sparse(w, [[1, 2], [1]], None) ** 2),
        "weighted": lambda w: np.sum(
            fo.embedding_lookup_sparse(w, [[1, 2], [5]], [[0.5, 1.0], [2.0]], combiner="sum")
        ),
        "sparse matrix": lambda w: np.sum(
            fo.sparse_matmul(scipy.sparse.csr_array(np.eye(6, dtype=np.float32)), w)
        ),
    }


def dense(gradient: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(gradient, fo.IndexedSlices):
        total = np.zeros(shape)
        np.add.at(total, gradient.indices, gradient.values.astype(float))
        return total
    return gradient.astype(float)


@both()
@pytest.mark.parametrize("name", losses())
def test_loss_and_gradient(name: str, half: Any) -> None:
    """As in float64, to a few roundings of 16 bits."""
    loss = losses()[name]
    w = fo.Variable(np.random.default_rng(1).uniform(0.1, 1, size=(6, 4)).astype(half))
    exact = fo.Variable(w.numpy().astype(np.float64))
    value = loss(w)
    (gradient,), (expected,) = fo.gradients(value, [w]), fo.gradients(loss(exact), [exact])
    assert gradient.dtype == half
    rtol = 2.0**-9 if half == np.float16 else 2.0**-6  # four units in the last place
    np.testing.assert_allclose(float(value), float(loss(exact)), rtol=rtol)
    wanted = dense(expected, (6, 4))
    got = dense(gradient, (6, 4))
    # Terms of a gradient may cancel, so errors are measured by the largest.
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())
    if name not in ("sparse matrix",):
        assert isinstance(gradient, fo.IndexedSlices) == isinstance(expected, fo.IndexedSlices)
    fo.AdamOptimizer(0.01).minimize(lambda: loss(w))
    assert w.dtype == half and np.isfinite(w.numpy().astype(float)).all()


@both()
def test_pooled_rows_are_summed_in_float32(half: Any) -> None:
    table = fo.Variable(np.ones((3, 2), half))
    bag = np.zeros(4097, int)
    out = fo.embedding_lookup_sparse(table, [bag.tolist()], None, combiner="sum")
    assert float(np.asarray(out)[0, 0]) == 4096.0  # in 16 bits such a sum stops at 2048 or 256
    assert out.dtype == half


@both()
def test_descends(half: Any) -> None:
    rng = np.random.default_rng(2)
    target = rng.normal(size=(20, 4))
    table = fo.Variable(np.zeros((20, 4), half))
    optimizer = fo.AdagradOptimizer(0.5, loss_scale="dynamic")
    for _ in range(300):
        ids = rng.integers(0, 20, size=8)
        wanted = target[ids].astype(half)
        optimizer.minimize(
            lambda ids=ids, wanted=wanted: np.sum((fo.embedding_lookup(table, ids) - wanted) ** 2)
        )
    # It began with 2 ** 15, where gradients are beyond float16: no warning, a smaller scale.
    scale = next(v for v in optimizer.variables() if "current_loss_scale" in v.name)
    assert half != np.float16 or scale.numpy() < 2.0**15
    error = np.abs(table.numpy().astype(float) - target)
    assert error.max() < 0.05


@every_record()
@both()
def test_saved_and_restored(record: Record, half: Any, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    rng = np.random.default_rng(3)
    start, g = rng.normal(size=(6, 2)).astype(half), rng.normal(size=(9, 6, 2)).astype(half)

    def made() -> tuple[Any, Any]:
        with fo.Graph().as_default():
            return fo.Variable(start, name="w"), record.make()

    w, optimizer = made()
    for k in range(4):
        optimizer.apply_gradients([(g[k], w)])
    with w.graph.as_default():
        fo.checkpoint.save(tmp_path / "saved", optimizer, [w])
    again, other = made()
    with again.graph.as_default():
        fo.checkpoint.restore(tmp_path / "saved", other, [again])
    for k in range(4, 9):
        optimizer.apply_gradients([(g[k], w)])
        other.apply_gradients([(g[k], again)])
    assert again.numpy().tobytes() == w.numpy().tobytes()
    mine, theirs = optimizer.get_slot(w, "master"), other.get_slot(again, "master")
    assert mine is not None and theirs is not None
    assert mine.numpy().tobytes() == theirs.numpy().tobytes()


@both()
def test_copies_and_pickles(half: Any) -> None:
    w = fo.Variable(np.ones(3, half), name="w")
    optimizer = fo.MomentumOptimizer(1e-4, 0.9)
    for _ in range(5):
        optimizer.apply_gradients([(np.ones(3, half), w)])
    others = [copy.deepcopy((w, optimizer)), pickle.loads(pickle.dumps((w, optimizer)))]
    for _ in range(20):
        optimizer.apply_gradients([(np.ones(3, half), w)])
        for v, opt in others:
            opt.apply_gradients([(np.ones(3, half), v)])
    for v, _ in others:
        assert v.dtype == half and v.numpy().tobytes() == w.numpy().tobytes()


@both()
def test_constraints(half: Any) -> None:
    table = fo.Variable(np.full((4, 2), 3.0, half), constraint=fo.constraints.MaxNorm(1.0, axis=1))
    optimizer = fo.GradientDescentOptimizer(0.5)
    optimizer.apply_gradients([(fo.IndexedSlices(np.ones((1, 2)), [2]), table)])
    expected = np.full((4, 2), 3.0)
    expected[2] = np.sqrt(0.5)
    np.testing.assert_allclose(table.numpy().astype(float), expected, rtol=4e-3)
    optimizer.apply_gradients([(np.zeros((4, 2)), table)])  # from what the constraint has left
    np.testing.assert_allclose(table.numpy().astype(float), np.sqrt(0.5), rtol=4e-3)


@both()
def test_a_rule_in_python_gets_float32(half: Any) -> None:
    seen = []

    class Mine(fo.Optimizer):
        def __init__(self) -> None:
            super().__init__(False, "mine")

        def _apply_dense(self, grad: Any, var: Any) -> Any:
            seen.append(grad)
            return var.assign_sub(grad * 0.5)

        def _apply_sparse(self, grad: Any, var: Any) -> Any:
            seen.append(grad.values)
            return var.scatter_sub(grad * 0.5)

    w = fo.Variable(np.ones((2, 1), half))
    Mine().apply_gradients([(np.ones((2, 1), half), w)])
    Mine().apply_gradients([(fo.IndexedSlices(np.full((2, 1), 6e4, half), [0, 0]), w)])
    assert [g.dtype for g in seen] == [np.float32, np.float32]
    assert seen[1][0, 0] == 2 * np.float32(half.type(6e4))
    assert w.dtype == half and w.numpy()[1, 0] == 0.5


@both()
def test_averages_of_small_moves(half: Any) -> None:
    """In 16 bits such an average stands still when it is still far away."""
    v = fo.Variable(np.zeros(2, half))
    ema = fo.ExponentialMovingAverage(0.999)
    ema.apply([v])
    v.assign(np.ones(2))
    for _ in range(3000):
        ema.apply([v])
    average = ema.average(v)
    assert average is not None and average.dtype == np.float32
    np.testing.assert_allclose(average.numpy(), 1 - 0.999**3000, rtol=1e-4)  # 3000 roundings
    assert v.assign(average).dtype == half
