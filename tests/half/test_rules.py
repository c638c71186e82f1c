"""Every rule on variables of 16 bits: what it does in float32, rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.half.support import bits, both
from tests.optimizer_db import Record, every_record, every_variant, fresh_graph, state_of

__all__ = ["fresh_graph"]


def gradients(rng: Any, shape: tuple[int, ...], sparse: bool, half: Any) -> Any:
    """Return a gradient of 16-bit numbers."""
    if not sparse:
        return rng.normal(size=shape).astype(half)
    n = 3 * shape[0] // 2
    ids = rng.integers(0, shape[0], size=n)
    return fo.IndexedSlices(rng.normal(size=(n, *shape[1:])).astype(half), ids, shape)


@every_variant()
@both()
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(7,), (40, 3), (30, 70), (5, 4100)])
def test_a_rule_in_float32_rounded(
    record: Record, kwargs: Any, half: Any, sparse: bool, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(8)
    start = rng.normal(size=shape).astype(half)
    var = fo.Variable(start, name="var")
    twin = fo.Variable(start.astype(np.float32), name="twin")
    optimizer, other = record.cls(**kwargs), record.cls(**kwargs)
    for step in range(4):
        g = gradients(rng, shape, sparse, half)
        optimizer.apply_gradients([(g, var)])
        if sparse:  # summed in float32
            g = fo.IndexedSlices(g.values.astype(np.float32), g.indices, shape)
        else:
            g = g.astype(np.float32)
        other.apply_gradients([(g, twin)])
        master = optimizer.get_slot(var, "master")
        assert master is not None and master.dtype == np.float32
        assert master.numpy().tobytes() == twin.numpy().tobytes(), step
        assert var.dtype == half
        assert (bits(var.numpy()) == bits(twin.numpy().astype(half))).all()
    for name in record.slots:
        mine, theirs = optimizer.get_slot(var, name), other.get_slot(twin, name)
        assert mine is not None and theirs is not None
        assert mine.dtype == np.float32 and mine.numpy().tobytes() == theirs.numpy().tobytes()
    assert optimizer.get_slot_names() == sorted([*record.slots, "master"])
    assert master.name == f"var/{optimizer.get_name()}_master"


@every_record()
@both()
def test_gradients_of_any_float(record: Record, half: Any) -> None:
    rng = np.random.default_rng(9)
    start, g = rng.normal(size=(6, 3)).astype(half), rng.normal(size=(6, 3)).astype(half)
    seen = []
    for dtype in (half, np.float32, np.float64):
        var = fo.Variable(start)
        optimizer = record.make()
        for _ in range(3):
            optimizer.apply_gradients([(g.astype(dtype), var)])
            optimizer.apply_gradients([(fo.IndexedSlices(g.astype(dtype)[:2], [4, 4]), var)])
        seen.append(var.numpy().tobytes())
    assert seen[0] == seen[1] == seen[2]


@every_record()
@both()
def test_what_somebody_writes_is_what_is_trained(record: Record, half: Any) -> None:
    """The master takes the value of a weight that it does not round to."""
    memory = np.full((4, 3), 0.5, half)
    var = fo.Variable(memory, copy=False)
    optimizer = record.make()
    zero = np.zeros((4, 3), np.float32)
    optimizer.apply_gradients([(zero, var)])
    master = optimizer.get_slot(var, "master")
    assert master is not None
    var.assign(np.full((4, 3), 3.0))
    memory[0] = 7.0  # behind everybody's back
    expected = np.full((4, 3), 3.0, np.float32)
    expected[0] = 7.0
    twin = fo.Variable(expected)
    other = record.make()
    other.apply_gradients([(zero, fo.Variable(np.full((4, 3), 0.5, np.float32)))])
    for name in record.slots:  # as if the twin had been there all the time
        slot = optimizer.get_slot(var, name)
        assert slot is not None
        other._slot(twin, name, name, slot.numpy)
    g = np.full((4, 3), 0.25, np.float32)
    optimizer.apply_gradients([(g, var)])
    other.apply_gradients([(g, twin)])
    assert master.numpy().tobytes() == twin.numpy().tobytes()


@every_record()
@both()
def test_a_failed_call_changes_nothing(record: Record, half: Any) -> None:
    var = fo.Variable(np.ones((4, 2), half), name="var")
    other = fo.Variable(np.ones(3, np.float32), name="other")
    optimizer = record.make()
    before = state_of(optimizer, var, other)
    for bad, error in (
        (np.ones(4), ValueError),
        (fo.IndexedSlices(np.ones((1, 2)), [4]), IndexError),
        (np.ones((4, 2), np.complex64), TypeError),
    ):
        with pytest.raises(error):
            optimizer.apply_gradients([(np.ones(3), other), (bad, var)])
        assert state_of(optimizer, var, other) == before


@every_record()
@both()
@pytest.mark.parametrize("n", [2, 3])
def test_same_bits_for_every_number_of_threads(record: Record, half: Any, n: int) -> None:
    rng = np.random.default_rng(10)
    dense = rng.normal(size=150_001).astype(np.float32)
    ids = rng.integers(0, 3000, size=6000)
    values = rng.normal(size=(6000, 16)).astype(np.float32)
    results = []
    for count in (1, n):
        with fo.num_threads(count):
            w = fo.Variable(np.ones(150_001, half))
            table = fo.Variable(np.ones((3000, 16), half))
            optimizer = record.make()
            for _ in range(2):
                optimizer.apply_gradients([(dense, w), (fo.IndexedSlices(values, ids), table)])
            results.append(w.numpy().tobytes() + table.numpy().tobytes())
    assert results[0] == results[1]


@both()
def test_in_one_call_with_others(half: Any) -> None:
    rng = np.random.default_rng(11)
    starts = [rng.normal(size=(5, 2)) for _ in range(4)]
    g = rng.normal(size=(5, 2)).astype(np.float32)
    dtypes = (np.float32, half, np.float64, half)
    together = [fo.Variable(s, dtype=d) for s, d in zip(starts, dtypes, strict=True)]
    alone = [fo.Variable(s, dtype=d) for s, d in zip(starts, dtypes, strict=True)]
    optimizer, other = fo.AdagradOptimizer(0.1), fo.AdagradOptimizer(0.1)
    for _ in range(3):
        optimizer.apply_gradients([(g.astype(v.dtype), v) for v in together])
        for v in alone:
            other.apply_gradients([(g, v)])
    for a, b in zip(together, alone, strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


@every_record()
@both()
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0)])
def test_shapes_at_the_border(record: Record, half: Any, shape: tuple[int, ...]) -> None:
    var = fo.Variable(np.ones(shape, half))
    optimizer = record.make()
    optimizer.apply_gradients([(np.ones(shape, half), var)])
    assert var.shape == shape and var.dtype == half
    if len(shape) > 1 or shape == (0,):
        none = fo.IndexedSlices(np.ones((0, *shape[1:]), half), np.zeros(0, int))
        optimizer.apply_gradients([(none, var)])
    master = optimizer.get_slot(var, "master")
    assert master is not None and master.shape == shape


@both()
@pytest.mark.parametrize("n", [1, 2047, 2048, 2049, 4097])
def test_sizes_around_a_block(half: Any, n: int) -> None:
    """Weights of 16 bits are updated 2048 at a time, and what is left over then."""
    var = fo.Variable(np.ones(n, half))
    fo.GradientDescentOptimizer(0.5).apply_gradients([(np.ones(n, half), var)])
    np.testing.assert_array_equal(var.numpy().astype(np.float32), 0.5)


@both()
def test_gradients_in_the_memory_of_the_weights(half: Any) -> None:
    """Whatever overlaps is copied first."""
    w = fo.Variable(np.linspace(0, 1, 8).astype(half), name="w")
    expected = fo.Variable(w.numpy(), name="expected")
    optimizer, other = fo.GradientDescentOptimizer(0.5), fo.GradientDescentOptimizer(0.5)
    for _ in range(2):
        other.apply_gradients([(expected.numpy(), expected)])
        optimizer.apply_gradients([(w.value, w)])
    assert w.numpy().tobytes() == expected.numpy().tobytes()
    master, like = optimizer.get_slot(w, "master"), other.get_slot(expected, "master")
    assert master is not None and like is not None
    optimizer.apply_gradients([(master.value, w)])
    other.apply_gradients([(like.numpy(), expected)])
    assert w.numpy().tobytes() == expected.numpy().tobytes()
