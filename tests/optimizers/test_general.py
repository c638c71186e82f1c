"""What every optimizer must do, whatever its rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import fastopt as fo
from fastopt.optimizers._kernel_optimizer import KernelOptimizer
from tests import strategies
from tests.optimizer_db import (
    RECORDS,
    Record,
    every_record,
    every_variant,
    slices_of,
    state_of,
)

EPS = {np.dtype(np.float32): 2.0**-23, np.dtype(np.float64): 2.0**-52}


def slots_of(optimizer: Any, var: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {name: optimizer.get_slot(var, name).numpy() for name in optimizer.get_slot_names()}


# ------------------------------------------------------------------ errors change nothing


def bad_calls() -> dict[str, tuple[Callable[[Any], Any], type[Exception]]]:
    """Return, by name, what makes a bad second pair for a variable (4, 2), and its error."""

    def slices(*args: Any) -> Callable[[Any], Any]:
        return lambda var: (fo.IndexedSlices(*args), var)

    def dense(gradient: Any) -> Callable[[Any], Any]:
        return lambda var: (gradient, var)

    two = np.ones((2, 2))
    return {
        "no pair": (lambda var: var, TypeError),
        "three items": (lambda var: (np.ones((4, 2)), var, 0), ValueError),
        "no gradient": (dense("text"), TypeError),
        "ragged": (dense([[1.0], [2.0, 3.0]]), TypeError),
        "complex": (dense(np.ones((4, 2), np.complex64)), TypeError),
        "bool": (dense(np.ones((4, 2), bool)), TypeError),
        "object": (dense(np.full((4, 2), None)), TypeError),
        "shape": (dense(np.ones((2, 4))), ValueError),
        "rank": (dense(np.ones((4, 2, 1))), ValueError),
        "scalar": (dense(1.0), ValueError),
        "no variable": (lambda var: (np.ones((4, 2)), np.ones((4, 2))), TypeError),
        "tensor": (lambda var: (np.ones((4, 2)), fo.Tensor(np.ones((4, 2)))), NotImplementedError),
        "row too large": (slices(two, [1, 4]), IndexError),
        "row negative": (slices(two, [-1, 0]), IndexError),
        "row of 64 bits": (slices(two, [0, 2**40]), IndexError),
        "rows too wide": (slices(np.ones((2, 3)), [0, 1]), ValueError),
        "rows of another rank": (slices(np.ones(2), [0, 1]), ValueError),
        "dense shape": (slices(two, [0, 1], (5, 2)), ValueError),
        "sparse matrix of another shape": (dense(scipy.sparse.csr_array((5, 2))), ValueError),
        "variable of integers": (
            lambda var: (np.ones(2), fo.Variable(np.array([1, 2]), name="n")),
            ValueError,
        ),
        "shared memory": (
            lambda var: (np.ones(2), fo.Variable(var._storage[1], copy=False, name="part")),
            ValueError,
        ),
        "constraint": (
            lambda var: (
                fo.IndexedSlices([[1.0]], [0]),
                fo.Variable(np.ones((2, 1)), constraint=lambda x: x, name="c"),
            ),
            RuntimeError,
        ),
    }


@every_record()
@pytest.mark.parametrize("what", bad_calls())
@pytest.mark.parametrize("trained", [False, True], ids=["first call", "later call"])
def test_a_failed_call_changes_nothing(record: Record, what: str, trained: bool) -> None:
    make, error = bad_calls()[what]
    v = fo.Variable(np.linspace(-1, 1, 3), name="v")
    table = fo.Variable(np.linspace(-1, 1, 8).reshape(4, 2), name="table")
    step = fo.Variable(np.int64(0), trainable=False, name="step")
    optimizer = record.make()
    good = [(np.ones((4, 2)), table), (np.ones(3), v)]
    if trained:
        for _ in range(2):
            optimizer.apply_gradients(good, global_step=step)
    before = state_of(optimizer, v, table, step)
    with pytest.raises(error):
        optimizer.apply_gradients([*good, make(table)], global_step=step)
    with pytest.raises(error):  # in the place of a gradient that has fitted before
        optimizer.apply_gradients([good[0], make(table)], global_step=step)
    assert state_of(optimizer, v, table, step) == before
    optimizer.apply_gradients(good, global_step=step)
    assert step.numpy() == 1 + 2 * trained


# ------------------------------------------------------------------ dense and sparse


@every_variant()
@given(data=st.data())
def test_slices_of_all_rows_are_the_dense_gradient(
    record: Record, kwargs: dict[str, Any], data: Any
) -> None:
    start = data.draw(strategies.arrays())
    a, b = fo.Variable(start), fo.Variable(start)
    dense, sparse = record.cls(**kwargs), record.cls(**kwargs)
    order = data.draw(st.permutations(range(start.shape[0])))
    for _ in range(3):
        gradient = data.draw(strategies.arrays(start.shape, start.dtype))
        rows = np.array(order, np.int32)
        dense.apply_gradients([(gradient, a)])
        sparse.apply_gradients([(fo.IndexedSlices(gradient[rows], rows), b)])
    assert a.numpy().tobytes() == b.numpy().tobytes()
    for name, slot in slots_of(dense, a).items():
        assert slot.tobytes() == sparse.get_slot(b, name).numpy().tobytes()


@every_variant()
@given(data=st.data())
def test_repeated_rows_are_summed_first(record: Record, kwargs: dict[str, Any], data: Any) -> None:
    start = data.draw(strategies.arrays())
    a, b = fo.Variable(start), fo.Variable(start)
    one, two = record.cls(**kwargs), record.cls(**kwargs)
    for _ in range(2):
        # Whole numbers: exact in any order, so that rules which don't sum first can be compared.
        slices = data.draw(
            strategies.slices(start.shape, start.dtype, elements=strategies.whole_numbers)
        )
        one.apply_gradients([(slices, a)])
        two.apply_gradients([(slices.coalesce(), b)])
    if record.duplicates == "sum":
        assert a.numpy().tobytes() == b.numpy().tobytes()
    else:  # each row is subtracted, and rounded, by itself
        scale = 12 * 8 * abs(kwargs["learning_rate"]) + np.abs(start).max(initial=0)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=24 * EPS[start.dtype] * scale)
    for name, slot in slots_of(one, a).items():
        assert slot.tobytes() == two.get_slot(b, name).numpy().tobytes()


@every_variant()
@given(data=st.data())
def test_rows_that_are_not_listed(record: Record, kwargs: dict[str, Any], data: Any) -> None:
    """They stay, or they move as a gradient of zero moves them."""
    start = data.draw(strategies.arrays())
    a, b = fo.Variable(start), fo.Variable(start)
    sparse, dense = record.cls(**kwargs), record.cls(**kwargs)
    first = data.draw(strategies.arrays(start.shape, start.dtype))
    sparse.apply_gradients([(first, a)])
    dense.apply_gradients([(first, b)])
    before = {"": a.numpy(), **slots_of(sparse, a)}
    slices = data.draw(strategies.slices(start.shape, start.dtype, dense_shape=True))
    sparse.apply_gradients([(slices, a)])
    after = {"": a.numpy(), **slots_of(sparse, a)}
    if record.other_rows:
        dense.apply_gradients([(slices.to_dense(), b)])
        # Rows that are not listed are updated by other formulas, with a few roundings.
        tolerance = 8 * np.finfo(start.dtype).eps
        np.testing.assert_allclose(a.numpy(), b.numpy(), tolerance, tolerance)
        return
    others = np.setdiff1d(np.arange(start.shape[0]), slices.indices)
    for name, value in before.items():
        if name not in record.fading:
            assert value[others].tobytes() == after[name][others].tobytes()


@every_variant()
@given(data=st.data())
def test_the_order_of_slices_is_only_rounding(
    record: Record, kwargs: dict[str, Any], data: Any
) -> None:
    start = data.draw(strategies.arrays(elements=strategies.whole_numbers))
    slices = data.draw(
        strategies.slices(start.shape, start.dtype, elements=strategies.whole_numbers)
    )
    order = np.array(data.draw(st.permutations(range(len(slices)))), np.intp)
    mixed = fo.IndexedSlices(slices.values[order], slices.indices[order])
    a, b = fo.Variable(start), fo.Variable(start)
    record.cls(**kwargs).apply_gradients([(slices, a)])
    record.cls(**kwargs).apply_gradients([(mixed, b)])
    if record.duplicates == "sum":  # sums of whole numbers are exact in any order
        assert a.numpy().tobytes() == b.numpy().tobytes()
    else:
        scale = 12 * 8 * abs(kwargs["learning_rate"]) + 8
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=24 * EPS[start.dtype] * scale)


@pytest.mark.parametrize(
    "record", [pytest.param(r, id=r.id) for r in RECORDS if not (r.counts_calls or r.whole)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_one_row_at_a_time(record: Record, dtype: Any, index: Any) -> None:
    """Rows don't know of each other, where a rule touches listed rows only."""
    rng = np.random.default_rng(4)
    start, values = rng.normal(size=(7, 3)).astype(dtype), rng.normal(size=(7, 3)).astype(dtype)
    a, b = fo.Variable(start), fo.Variable(start)
    together, apart = record.make(), record.make()
    together.apply_gradients([(slices_of(values), a)])
    for row in range(7):
        rows = np.array([row], index)
        apart.apply_gradients([(fo.IndexedSlices(values[row : row + 1], rows), b)])
    assert a.numpy().tobytes() == b.numpy().tobytes()


@every_record()
def test_dense_and_sparse_in_one_call_and_by_turns(record: Record) -> None:
    rng = np.random.default_rng(8)
    start = rng.normal(size=(5, 2))
    pair = [fo.Variable(start), fo.Variable(start)]
    apart = [fo.Variable(start), fo.Variable(start)]
    together, alone = record.make(), [record.make(), record.make()]
    for k in range(6):
        dense = rng.normal(size=(5, 2))
        sparse = fo.IndexedSlices(rng.normal(size=(3, 2)), [4, 1, 4])
        gradients = [dense, sparse] if k % 2 else [sparse, dense]
        together.apply_gradients(list(zip(gradients, pair, strict=True)))
        for optimizer, gradient, var in zip(alone, gradients, apart, strict=True):
            optimizer.apply_gradients([(gradient, var)])
    for a, b in zip(pair, apart, strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


@every_record()
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_without_rows(record: Record, dtype: Any) -> None:
    table = fo.Variable(np.ones((5, 3), dtype))
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = record.make()
    empty = fo.IndexedSlices(np.ones((0, 3), dtype), np.array([], np.int64))
    for k in range(1, 4):
        done = optimizer.apply_gradients([(empty, table)], global_step=step)
        assert (table.numpy() == 1).all()  # moments are zero, so Adam doesn't move either
        assert step.numpy() == k and done.sparse_rows == 0
    power = optimizer._get_non_slot_variable("beta1_power")
    if power is not None:
        assert power.numpy() == pytest.approx(0.9**4)
    elif record.counts_calls:
        assert optimizer._get_non_slot_variable("iteration").numpy() == 4


@every_record()
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1,), (2, 1, 3)])
def test_shapes_without_much_in_them(record: Record, shape: tuple[int, ...]) -> None:
    v = fo.Variable(np.ones(shape))
    optimizer = record.make()
    for _ in range(2):
        optimizer.apply_gradients([(np.ones(shape), v)])
    assert v.shape == shape and np.isfinite(v.numpy()).all()
    if shape and shape[0]:
        optimizer.apply_gradients([(fo.IndexedSlices(np.ones((1, *shape[1:])), [0]), v)])
    elif not shape:
        with pytest.raises(ValueError, match=r"shape \(\)"):
            optimizer.apply_gradients([(fo.IndexedSlices([1.0], [0]), v)])


# ------------------------------------------------------------------ bits


def trained_state(record: Record, kwargs: dict[str, Any], dtype: Any) -> dict[str, bytes]:
    """Train on sizes that go to several threads."""
    rng = np.random.default_rng(9)
    with fo.Graph().as_default():
        dense = fo.Variable(rng.normal(size=200_003).astype(dtype), name="dense")
        table = fo.Variable(rng.normal(size=(3000, 17)).astype(dtype), name="table")
        optimizer = record.cls(**kwargs)
        for _ in range(2):
            ids = rng.zipf(1.3, 8000) % 3000
            values = rng.normal(size=(8000, 17)).astype(dtype)
            gradient = rng.normal(size=200_003).astype(dtype)
            optimizer.apply_gradients([(gradient, dense), (fo.IndexedSlices(values, ids), table)])
        return state_of(optimizer, dense, table)


@every_variant()
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_change_no_bit(record: Record, kwargs: dict[str, Any], dtype: Any) -> None:
    results = []
    for threads in (1, 2, 3, 8):
        with fo.num_threads(threads):
            results.append(trained_state(record, kwargs, dtype))
    assert all(result == results[0] for result in results)


# ------------------------------------------------------------------ problems that are solved


@every_record()
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_parabola_is_solved(record: Record, dtype: Any) -> None:
    kwargs, steps = record.parabola
    target = np.array([1.0, -2.0, 0.5], dtype)
    v = fo.Variable(np.zeros(3, dtype))
    optimizer = record.make(**kwargs)
    for _ in range(steps):
        optimizer.minimize(lambda: np.sum((v - target) ** 2))
    np.testing.assert_allclose(v.numpy(), target, rtol=2e-3)  # where the eye sees no difference


@every_record()
def test_rosenbrocks_valley_is_walked_down(record: Record) -> None:
    kwargs, steps = record.rosenbrock
    v = fo.Variable(np.array([-1.2, 1.0]))
    optimizer = record.make(**kwargs)
    for _ in range(steps):
        x, y = v.value
        gradient = np.array([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)])
        optimizer.apply_gradients([(gradient, v)])
    np.testing.assert_allclose(v.numpy(), [1.0, 1.0], atol=0.05)


@every_record()
def test_rows_of_a_table_are_learned(record: Record) -> None:
    kwargs, steps = record.parabola
    rng = np.random.default_rng(6)
    table = fo.Variable(np.zeros((20, 3)))
    target = rng.normal(size=(20, 3))
    optimizer = record.make(**kwargs)
    for _ in range(steps):
        ids = rng.integers(0, 10, 12)
        optimizer.minimize(
            lambda ids=ids: np.sum((fo.embedding_lookup(table, ids) - target[ids]) ** 2) / 2
        )
    np.testing.assert_allclose(table.numpy()[:10], target[:10], atol=0.1)
    assert not table.numpy()[10:].any()


def test_the_registry_knows_every_public_optimizer() -> None:
    public = {
        cls
        for name in fo.__all__
        if isinstance(cls := getattr(fo, name), type) and issubclass(cls, KernelOptimizer)
    }
    assert {record.cls for record in RECORDS} == public
    assert len({record.id for record in RECORDS}) == len(RECORDS)
