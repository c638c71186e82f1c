"""Rules that sum over rows or variables: steps against the oracle, and what they are for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests import reference

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def tolerance(dtype: Any) -> dict[str, float]:
    """Some twenty operations a step on numbers around one, and sums of at most 5000 of them."""
    eps = float(np.finfo(dtype).eps)
    return {"rtol": 1000 * eps, "atol": 1000 * eps}


def hyperparameters(optimizer: Any, t: int) -> tuple[str, dict[str, Any]]:
    """Return rule and arguments of the oracle in step t."""
    h = dict(optimizer._hyperparameters)
    rule = optimizer._rule_name
    known: dict[str, Any] = {"learning_rate": h["learning_rate"]}
    if rule.startswith("rowwise_adagrad"):
        known["epsilon"] = h["epsilon"]
        if h["weighted"]:
            known["weight"] = np.sqrt(t + 1)
        return "rowwise_adagrad", known
    if rule == "group_ftrl":
        for name in ("l1", "l2", "l21"):
            known[name] = h[f"{name}_regularization_strength"]
        return rule, known
    known.update(weight_decay=h["weight_decay"]) if "weight_decay" in h else None
    if "layer_adaptation" in h:
        known["adapt"] = h["layer_adaptation"]
    if rule.startswith("lars"):
        known.update({name: h[name] for name in ("momentum", "eeta", "epsilon", "use_nesterov")})
        return "lars", known
    for name in ("beta1", "beta2"):
        known[name], known[f"{name}_power"] = h[name], h[name] ** t
    return rule, {**known, "epsilon": h["epsilon"]}


OPTIMIZERS = {
    "rowwise": lambda: fo.RowWiseAdagradOptimizer(0.3, initial_accumulator_value=0.1),
    "weighted": lambda: fo.RowWiseAdagradOptimizer(0.3, weighted=True),
    "partial": lambda: fo.PartialRowWiseAdamOptimizer(0.1, beta2=0.9),
    "group": lambda: fo.GroupFtrlOptimizer(
        0.5,
        l1_regularization_strength=0.1,
        l2_regularization_strength=0.1,
        l21_regularization_strength=0.3,
    ),
    "lamb": lambda: fo.LAMBOptimizer(0.1, beta2=0.9, weight_decay=0.1),
    "lamb, not adapted": lambda: fo.LAMBOptimizer(0.1, weight_decay=0.1, layer_adaptation=False),
    "lars": lambda: fo.LARSOptimizer(0.5, weight_decay=0.1, eeta=0.3),
    "nesterov": lambda: fo.LARSOptimizer(0.5, weight_decay=0.1, eeta=0.3, use_nesterov=True),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("row", [(), (1,), (3,), (16,), (2, 9), (2049,), (5000,)])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@every_dtype
def test_several_steps(make: Any, row: tuple[int, ...], sparse: bool, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    start = rng.normal(size=(6, *row)).astype(dtype)
    var = fo.Variable(start)
    optimizer = make()
    w = start.astype(np.float64)
    slots: dict[str, Any] = {}
    for t in range(1, 6):
        if sparse:
            ids = rng.integers(0, 6, 5)
            gradient = fo.IndexedSlices(rng.normal(size=(5, *row)).astype(dtype), ids)
        else:
            gradient = rng.normal(size=start.shape).astype(dtype)
        optimizer.apply_gradients([(gradient, var)])
        rule, known = hyperparameters(optimizer, t)
        if not slots:
            for slot in optimizer._slot_table:
                shape = w.shape[:1] if slot.per_row else w.shape
                fill = slot.initial
                fill = optimizer._hyperparameters[fill] if isinstance(fill, str) else fill
                slots[slot.name] = np.full(shape, fill, np.float64)
        if sparse:
            values = gradient.values.astype(np.float64)
            w, slots = reference.sparse_step(rule, w, values, gradient.indices, slots, **known)
        else:
            w, slots = reference.dense_step(rule, w, gradient, slots, **known)
        np.testing.assert_allclose(var.numpy(), w, err_msg=f"step {t}", **tolerance(dtype))
        for name, slot in slots.items():
            kept = optimizer.get_slot(var, name).numpy()
            assert kept.dtype == dtype and kept.shape == slot.shape
            np.testing.assert_allclose(kept, slot, err_msg=name, **tolerance(dtype))


@every_dtype
def test_rows_of_one_element_are_plain_ftrl(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    a, b = fo.Variable(np.zeros((40, 1), dtype)), fo.Variable(np.zeros((40, 1), dtype))
    group = fo.GroupFtrlOptimizer(
        0.5, l1_regularization_strength=0.25, l21_regularization_strength=0.5
    )
    plain = fo.FtrlOptimizer(0.5, l1_regularization_strength=0.75)
    for _ in range(5):
        gradient = rng.normal(size=(40, 1)).astype(dtype)
        group.apply_gradients([(gradient, a)])
        plain.apply_gradients([(gradient, b)])
    np.testing.assert_allclose(a.numpy(), b.numpy(), **tolerance(dtype))
    np.testing.assert_array_equal(a.numpy() == 0, b.numpy() == 0)
    assert (a.numpy() == 0).any() and a.numpy().any()


def test_rows_of_useless_features_become_zero_and_can_be_pruned() -> None:
    """A classifier with three classes, of whose 30 features only the first five tell anything."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2000, 30))
    true = np.zeros((30, 3))
    true[:5] = 3 * rng.normal(size=(5, 3))
    labels = np.argmax(x @ true + rng.gumbel(size=(2000, 3)), axis=1)
    table = fo.Variable(0.01 * rng.normal(size=(30, 3)), name="features")
    optimizer = fo.GroupFtrlOptimizer(0.1, l21_regularization_strength=20.0)
    for _ in range(5):
        for lo in range(0, 2000, 50):
            batch, y = x[lo : lo + 50], np.eye(3)[labels[lo : lo + 50]]
            logits = batch @ table.value
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            optimizer.apply_gradients([(batch.T @ (p - y) / 5, table)])
    gone = fo.zero_rows(table)
    assert set(gone) <= set(range(5, 30)) and len(gone) >= 20
    kept = np.delete(np.arange(30), gone)
    right = np.mean(np.argmax(x[:, kept] @ table.value[kept], axis=1) == labels)
    assert right > 0.8 * np.mean(np.argmax(x @ true, axis=1) == labels)


def test_the_length_of_a_lamb_step_is_that_of_the_weights() -> None:
    rng = np.random.default_rng(4)
    for scale in (1e-3, 1.0, 1e3):
        start = scale * rng.normal(size=(50, 40))
        var = fo.Variable(start)
        gradient = rng.normal(size=(50, 40))
        fo.LAMBOptimizer(0.1).apply_gradients([(gradient, var)])
        moved = np.linalg.norm(var.numpy() - start) / np.linalg.norm(start)
        assert moved == pytest.approx(0.1, rel=1e-12)


@pytest.mark.parametrize("make", [fo.LAMBOptimizer, lambda: fo.LARSOptimizer(0.1)])
def test_a_variable_without_weights_or_gradient_takes_a_plain_step(make: Any) -> None:
    for start, gradient in (([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 0.0])):
        a, b = fo.Variable(start), fo.Variable(start)
        adapted, plain = make(), make()
        plain.configure(b, layer_adaptation=False)
        for optimizer, var in ((adapted, a), (plain, b)):
            optimizer.configure(var, weight_decay=0.0)
            optimizer.apply_gradients([(np.array(gradient), var)])
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("make", [OPTIMIZERS["rowwise"], OPTIMIZERS["partial"]])
def test_rows_of_no_elements_have_no_mean(make: Any, sparse: bool) -> None:
    var, optimizer = fo.Variable(np.zeros((3, 0))), make()
    gradient: Any = np.zeros((3, 0))
    for _ in range(2):
        given = fo.IndexedSlices(gradient[:1], [1]) if sparse else gradient
        optimizer.apply_gradients([(given, var)])
    for name in optimizer.get_slot_names():
        assert np.isfinite(optimizer.get_slot(var, name).numpy()).all()


def test_rows_of_no_elements_beside_a_large_variable() -> None:
    """Rows are shared out to threads by their size, which may be nothing."""
    empty, large = fo.Variable(np.zeros((3, 0))), fo.Variable(np.ones((40_000, 2)))
    pairs = [(np.zeros((3, 0)), empty), (np.ones((40_000, 2)), large)]
    with fo.num_threads(2):
        fo.RowWiseAdagradOptimizer(0.5, epsilon=0.0).apply_gradients(pairs)
    np.testing.assert_array_equal(large.numpy(), 0.5)


def test_a_large_variable_and_small_ones_in_one_call() -> None:
    """Sums of a variable are its own, wherever its elements are summed."""
    rng = np.random.default_rng(5)
    shapes = [(3,), (40_000,), (), (7, 3000), (0, 4), (5,)]
    starts = [np.asarray(rng.normal(size=shape)) for shape in shapes]
    gradients = [np.asarray(rng.normal(size=shape)) for shape in shapes]
    for threads in (1, 2, 5):
        variables = [fo.Variable(start) for start in starts]
        optimizer = fo.LAMBOptimizer(0.1)
        with fo.num_threads(threads):
            optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
        for start, gradient, var in zip(starts, gradients, variables, strict=True):
            alone = fo.Variable(start)
            fo.LAMBOptimizer(0.1).apply_gradients([(gradient, alone)])
            assert alone.numpy().tobytes() == var.numpy().tobytes()


@pytest.mark.parametrize("row_slot", [np.ones((4, 1)), np.ones((4, 2)), np.ones(2), np.ones(())])
def test_a_plan_takes_one_number_a_row_and_nothing_else(row_slot: Any) -> None:
    """NVIDIA/recsys-examples PR#305: the width of row-wise state was confused."""
    from fastopt._kernels._plan import Plan

    key = fo.Variable(np.ones(1))
    with pytest.raises(ValueError, match=r"slot 'accumulator' of array 0 must have .*\(4,\)"):
        Plan("rowwise_adagrad", [key], [np.ones((4, 2))], [(row_slot,)], fo.IndexedSlices)
    with pytest.raises(ValueError, match="leaves untouched rows as they are"):
        Plan(
            "rowwise_adagrad",
            [key],
            [np.ones((4, 2))],
            [(np.ones(4),)],
            fo.IndexedSlices,
            "update",
        )
