"""16-bit variables without a master: updates in float32, rounded up or down at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels import _half
from fastopt.optimizers._rounding import key_of_call, key_of_variable
from tests.half.support import F16, bits, both
from tests.kernels.support import threads
from tests.optimizer_db import Record, every_record, every_variant, fresh_graph

__all__ = ["fresh_graph"]

SHAPES = [(7,), (40, 3), (30, 70), (5, 4100)]


def gradient_for(record: Record, rng: Any, shape: tuple[int, ...], sparse: bool) -> Any:
    if not sparse:
        return rng.normal(size=shape).astype(np.float32)
    n = 3 * shape[0] // 2
    ids = rng.integers(0, shape[0], size=n)
    if record.duplicates == "sequential":  # rounded after each of them
        ids = rng.permutation(np.unique(ids))
    values = rng.normal(size=(len(ids), *shape[1:])).astype(np.float32)
    return fo.IndexedSlices(values, ids, shape)


@every_variant()
@both()
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_rule_in_float32_rounded_at_random(
    record: Record, kwargs: Any, half: Any, sparse: bool, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(8)
    start = rng.normal(size=shape).astype(half)
    var = fo.Variable(start, name="var")
    twin = fo.Variable(np.zeros(shape, np.float32), name="twin")
    if sparse and record.fading:
        pytest.skip("refused: see test_rows_that_wait_need_a_master")
    optimizer = fo.stochastic_rounding(record.cls(**kwargs), seed=3)
    # What a row has missed can't be made up for: all are updated.
    at_once = {"sparse_updates": "dense"} if "sparse_updates" in record.cls._constraints else {}
    other = record.cls(**{**kwargs, **at_once})
    # Sums over a variable are formed block by block; what is made up for later is rounded once.
    exact = not record.whole and not (sparse and other._untouched == "defer")
    place = 2.0 ** (-10 if half == F16 else -7)
    for call in range(4):
        twin.assign(_half.widen(var.numpy()))
        g = gradient_for(record, rng, shape, sparse)
        optimizer.apply_gradients([(g, var)])
        other.apply_gradients([(g, twin)])
        key = key_of_call(3, call) ^ key_of_variable(var)
        expected = _half.narrow(twin.numpy(), half, key)
        if sparse and record.duplicates == "sequential":  # each look-up has its own numbers
            for place_of, row in enumerate(g.indices):
                own = (key + place_of * 0x9E3779B9) % 2**32
                expected[row] = _half.narrow(twin.numpy(), half, own)[row]
        if not exact:
            np.testing.assert_allclose(
                _half.widen(var.numpy()), twin.numpy(), rtol=place, atol=1e-6
            )
        else:
            assert (bits(var.numpy()) == bits(expected)).all(), call
    assert optimizer.get_slot_names() == sorted(record.slots)
    for name in record.slots:
        mine, theirs = optimizer.get_slot(var, name), other.get_slot(twin, name)
        assert mine is not None and theirs is not None and mine.dtype == np.float32
        if exact:
            assert mine.numpy().tobytes() == theirs.numpy().tobytes()


@every_record()
@both()
def test_same_bits_for_every_number_of_threads(record: Record, half: Any) -> None:
    rng = np.random.default_rng(5)
    dense = rng.normal(size=70_001).astype(np.float32)
    ids = rng.integers(0, 900, size=4000)
    rows = {width: rng.normal(size=(4000, width)).astype(np.float32) for width in (3, 40)}
    seen = set()
    for n in (1, 2, 5):
        with fo.Graph().as_default():
            w = fo.Variable(np.full(70_001, 0.3, half), name="w")
            tables = {
                width: fo.Variable(np.full((900, width), 0.3, half), name=f"table{width}")
                for width in rows
            }
        optimizer = fo.stochastic_rounding(record.make())
        with threads(n):
            for _ in range(2):
                pairs: list[Any] = [(dense, w)]
                if not record.fading:
                    pairs += [(fo.IndexedSlices(rows[width], ids), tables[width]) for width in rows]
                optimizer.apply_gradients(pairs)
        slots = [
            slot
            for var in (w, *tables.values())
            for name in record.slots
            if (slot := optimizer.get_slot(var, name)) is not None
        ]
        variables = [w, *tables.values(), *slots]
        seen.add(b"".join(v.numpy().tobytes() for v in variables))
    assert len(seen) == 1


@both()
@pytest.mark.parametrize("sparse", [False, True])
def test_wide_rows_decay_once(half: Any, sparse: bool) -> None:
    """Of a row that is longer than a block a copy is made twice, for its sum and its update."""
    rng = np.random.default_rng(7)
    var = fo.Variable(rng.normal(size=(3, 5000)).astype(half), name="var")
    twin = fo.Variable(_half.widen(var.numpy()), name="twin")
    optimizer, other = (
        fo.decouple(fo.RowWiseAdagradOptimizer(0.3), 0.25, listed_rows_only=True) for _ in range(2)
    )
    g: Any = rng.normal(size=(3, 5000)).astype(np.float32)
    if sparse:
        g = fo.IndexedSlices(g[:2], [2, 0])
    fo.stochastic_rounding(optimizer).apply_gradients([(g, var)])
    other.apply_gradients([(g, twin)])
    key = key_of_call(0, 0) ^ key_of_variable(var)
    assert (bits(var.numpy()) == bits(_half.narrow(twin.numpy(), half, key))).all()


@both()
@pytest.mark.parametrize("width", [1, 3, 7, 8])
def test_rows_that_all_differ(half: Any, width: int) -> None:
    rng = np.random.default_rng(6)
    var = fo.Variable(np.full((50, width), 0.3, half), name="var")
    twin = fo.Variable(_half.widen(var.numpy()))
    optimizer, other = fo.stochastic_rounding(fo.AdagradOptimizer(0.1)), fo.AdagradOptimizer(0.1)
    g = fo.IndexedSlices(rng.normal(size=(20, width)).astype(np.float32), rng.permutation(50)[:20])
    optimizer.apply_gradients([(g, var)])
    other.apply_gradients([(g, twin)])
    key = key_of_call(0, 0) ^ key_of_variable(var)
    assert (bits(var.numpy()) == bits(_half.narrow(twin.numpy(), half, key))).all()


@both()
def test_small_steps_count_on_average(half: Any) -> None:
    """A step is much less than the distance of numbers: rounded to nearest, nothing moves."""
    var = fo.Variable(np.ones((2, 5000), half), name="var")
    optimizer = fo.stochastic_rounding(fo.GradientDescentOptimizer(1e-4))
    ones = np.ones((1, 5000), np.float32)
    for _ in range(50):
        optimizer.apply_gradients([(fo.IndexedSlices(ones, [1]), var)])
    values = _half.widen(var.numpy())
    assert (values[0] == 1).all()
    # 50 steps of 1e-4. A weight deviates by less than sqrt(50) / 2 places: six standard errors.
    place = 2.0 ** (-11 if half == F16 else -8)
    assert abs(values[1].mean() - 0.995) < 6 * place * np.sqrt(50) / 2 / np.sqrt(5000)


@both()
def test_duplicates_one_after_the_other_are_rounded_independently(half: Any) -> None:
    """With the same random bits each time, a weight would go down in all rounds or in none."""
    var = fo.Variable(np.ones((1, 5000), half), name="var")
    optimizer = fo.stochastic_rounding(fo.GradientDescentOptimizer(1e-4))
    times = 64
    slices = fo.IndexedSlices(np.ones((times, 5000), np.float32), np.zeros(times, np.int64))
    optimizer.apply_gradients([(slices, var)])
    values = _half.widen(var.numpy())[0]
    place = 2.0 ** (-11 if half == F16 else -8)
    assert abs(values.mean() - (1 - times * 1e-4)) < 6 * place * np.sqrt(times) / 2 / np.sqrt(5000)


def test_variables_differ_in_their_random_numbers() -> None:
    a, b = (fo.Variable(np.ones(1000, F16), name=name) for name in "ab")
    optimizer = fo.stochastic_rounding(fo.GradientDescentOptimizer(2.0**-13))
    g = np.ones(1000, np.float32)
    optimizer.apply_gradients([(g, a), (g, b)])
    down_a, down_b = a.numpy() < 1, b.numpy() < 1
    # A quarter of a place each: an eighth of a quarter of all would be both, were they the same.
    assert abs((down_a & down_b).mean() - 1 / 16) < 0.05
    assert abs(down_a.mean() - 1 / 4) < 0.1


@pytest.mark.parametrize("threads_", [1, 2])
@both()
def test_a_restored_training_goes_on_with_the_same_bits(
    half: Any, threads_: int, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    rng = np.random.default_rng(2)
    steps = [
        [(fo.IndexedSlices(rng.normal(size=(50, 8)), rng.integers(0, 90, 50)), "table"),
         (rng.normal(size=300), "w")]
        for _ in range(6)
    ]  # fmt: skip

    def fresh() -> tuple[Any, dict[str, fo.Variable]]:
        with fo.Graph().as_default():
            variables = {
                "table": fo.Variable(np.full((90, 8), 0.5, half), name="table"),
                "w": fo.Variable(np.full(300, 0.5, half), name="w"),
            }
        return fo.stochastic_rounding(fo.AdagradOptimizer(0.01), seed=9), variables

    with threads(threads_):
        optimizer, variables = fresh()
        for number, step in enumerate(steps):
            if number == 3:
                fo.checkpoint.save(tmp_path / "c", optimizer, list(variables.values()))
            optimizer.apply_gradients([(g, variables[name]) for g, name in step])
        expected = {name: var.numpy().tobytes() for name, var in variables.items()}
        optimizer, variables = fresh()
        fo.checkpoint.restore(tmp_path / "c", optimizer, list(variables.values()))
        for step in steps[3:]:
            optimizer.apply_gradients([(g, variables[name]) for g, name in step])
    assert {name: var.numpy().tobytes() for name, var in variables.items()} == expected


def test_other_variables_are_as_ever() -> None:
    w, half = fo.Variable(np.ones(3), name="w"), fo.Variable(np.ones(3, F16), name="half")
    plain = fo.Variable(np.ones(3), name="plain")
    optimizer = fo.stochastic_rounding(fo.AdagradOptimizer(0.1))
    optimizer.apply_gradients([(np.ones(3), w)])
    assert optimizer.variables() == [optimizer.get_slot(w, "accumulator")]  # no counter either
    optimizer.apply_gradients([(np.ones(3), half), (np.ones(3), w)])
    other = fo.AdagradOptimizer(0.1)
    for _ in range(2):
        other.apply_gradients([(np.ones(3), plain)])
    assert w.numpy().tobytes() == plain.numpy().tobytes()
    assert sorted(v.name for v in optimizer.variables())[-1] == "w/Adagrad"
    assert "rounding_step" in {v.name for v in optimizer.variables()}


def test_rows_that_wait_need_a_master() -> None:
    table = fo.Variable(np.ones((4, 2), F16), name="table")
    slices = fo.IndexedSlices(np.ones((1, 2), np.float32), [0])
    fading = fo.stochastic_rounding(fo.NadamOptimizer())
    with pytest.raises(ValueError, match="NadamOptimizer: the slots of all rows fade.*'table'"):
        fading.apply_gradients([(slices, table)])
    assert (table.numpy() == 1).all() and fading.variables() == []
    optimizer = fo.stochastic_rounding(fo.decouple(fo.MomentumOptimizer(0.5, 0.5), 0.25))
    for _ in range(2):
        with pytest.raises(ValueError, match="all rows decay of variable 'table'.*float16"):
            optimizer.apply_gradients([(slices, table)])
        assert (table.numpy() == 1).all()
    optimizer.apply_gradients([(np.zeros((4, 2), np.float32), table)])  # a dense one can
    assert (table.numpy() == 0.75).all()
    with pytest.raises(ValueError, match="all rows decay of variable 'table'"):
        optimizer.apply_gradients([(slices, table)])
    assert (table.numpy() == 0.75).all()
    listed = fo.decouple(fo.MomentumOptimizer(0.5, 0.5), 0.25, listed_rows_only=True)
    listed = fo.stochastic_rounding(listed)
    listed.apply_gradients([(fo.IndexedSlices(np.zeros((2, 2), np.float32), [0, 0]), table)])
    np.testing.assert_allclose(table.numpy()[:, 0].astype(float), [0.5625, 0.75, 0.75, 0.75])


def test_rules_that_move_all_rows_do_so_at_once() -> None:
    table = fo.Variable(np.ones((4, 2), F16), name="table")
    optimizer = fo.stochastic_rounding(fo.AdamWOptimizer(0.25, 0.5))
    one = fo.IndexedSlices(np.ones((1, 2), np.float32), [0])
    optimizer.apply_gradients([(one, table)])
    assert (table.numpy()[1:] == 0.75).all()
    before = table.numpy()[0, 0]
    optimizer.apply_gradients([(fo.IndexedSlices(np.ones((1, 2), np.float32), [1]), table)])
    assert table.numpy()[0, 0] < before * 0.75  # moved by its momentum, too


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="one of fastopt's own rules"):
        fo.stochastic_rounding(object())  # type: ignore[type-var]
    for seed in (True, 1.5, "7", None):
        with pytest.raises(TypeError, match="seed must be an integer"):
            fo.stochastic_rounding(fo.AdagradOptimizer(0.1), seed)  # type: ignore[arg-type]
    for seed in (-1, 2**32):
        with pytest.raises(ValueError, match="seed must be from 0"):
            fo.stochastic_rounding(fo.AdagradOptimizer(0.1), seed)
    optimizer = fo.AdagradOptimizer(0.1)
    var = fo.Variable(np.ones(3, F16), name="var")
    optimizer.apply_gradients([(np.ones(3, F16), var)])
    with pytest.raises(ValueError, match="'var' have masters already"):
        fo.stochastic_rounding(optimizer)
    before = var.numpy()
    optimizer.apply_gradients([(np.ones(3, F16), var)])
    assert (var.numpy() != before).any() and optimizer.get_slot(var, "master") is not None
