"""The walks over look-ups against another way to the same bits.

A rule does to a row that is looked up what it does to a row of a dense variable: so the rows that
are looked up, as a variable of their own with a dense gradient, must come to the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastopt._kernels._half import narrow, widen
from fastopt._kernels._plan import Plan
from fastopt._kernels.rules import RULES
from tests.half.support import both
from tests.kernels.support import (
    SPARSE_CASES,
    SPARSE_IDS,
    Array,
    Key,
    Slices,
    kernel_of,
    scalars_of,
    state,
    threads,
)

# Around the widths of vectors, of short rows, of a buffer, and of what is fetched ahead.
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 27, 32, 33, 64, 100, 128, 130, 300)
RATE = {"learning_rate": 0.1}
WIDE = (2047, 2048, 2049, 4100)


def summed(ids: Array, values: Array) -> tuple[Array, Array]:
    """Unique ids and the sums of their values, from left to right."""
    unique, where = np.unique(ids, return_inverse=True)
    sums = np.zeros((len(unique), *values.shape[1:]), values.dtype)
    seen = np.zeros(len(unique), bool)
    for k, u in enumerate(where):
        sums[u] = sums[u] + values[k] if seen[u] else values[k]
        seen[u] = True
    return unique, sums


def in_turn(ids: Array) -> list[Array]:
    """Positions, in lists without a repeated id, which keep the order of every id."""
    times = np.zeros(len(ids), np.int64)
    seen: dict[int, int] = {}
    for k, row in enumerate(ids.tolist()):
        times[k] = seen[row] = seen.get(row, -1) + 1
    return [np.flatnonzero(times == t) for t in range(times.max() + 1)]


def run(
    name: str,
    w: Array,
    slots: Any,
    gradient: Any,
    scalars: Any,
    half: Any = None,
    decay: float = 0.0,
) -> Plan:
    key = Key()
    plan = Plan(name, [key], [w], [tuple(slots)], Slices, halves=[half], decay_listed=True)
    assert plan.bind([(gradient, key)])
    plan.run(scalars, decay)
    return plan


def check(
    rule: str,
    hyper: Any,
    ids: Array,
    n_rows: int,
    width: int,
    dtype: Any,
    half: Any = None,
    decay: float = 0.0,
) -> None:
    name, scalars = kernel_of(rule, hyper), scalars_of(rule, hyper)
    rng = np.random.default_rng(len(ids) + width)
    w, slots = state(name, (n_rows, width), dtype, rng)
    values = rng.normal(size=(len(ids), width)).astype(dtype)
    bits = narrow(w, half) if half is not None else None
    if half is not None:
        w = widen(bits)
    parts = in_turn(ids) if RULES[name].duplicates == "sequential" else [np.arange(len(ids))]
    expected = {"w": w.copy(), **{slot: array.copy() for slot, array in slots.items()}}
    for turn, part in enumerate(parts):
        unique, sums = summed(ids[part], values[part])
        rows = {slot: array[unique] for slot, array in expected.items()}
        run(
            name,
            rows["w"],
            [rows[slot] for slot in slots],
            sums,
            scalars,
            None,
            decay * (turn == 0),
        )
        for slot, array in expected.items():
            array[unique] = rows[slot]
    plan = run(name, w, slots.values(), Slices(values, ids), scalars, bits, decay)
    assert plan.rows_touched == len(np.unique(ids))
    for slot, array in {"w": w, **slots}.items():
        np.testing.assert_array_equal(array, expected[slot], err_msg=slot)
    if half is not None:
        assert np.asarray(bits).tobytes() == np.asarray(narrow(w, half)).tobytes()


def skewed(n_rows: int, n: int, dtype: Any = np.int64) -> Array:
    """Row numbers of which one in three is the same, and some come once."""
    rng = np.random.default_rng(n)
    ids = (n_rows * rng.random(n) ** 4).astype(dtype)
    ids[rng.random(n) < 1 / 3] = n_rows - 1
    return np.asarray(ids)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rule", "hyper"), SPARSE_CASES, ids=SPARSE_IDS)
def test_widths(rule: str, hyper: Any, dtype: Any) -> None:
    for width in WIDTHS:
        check(rule, hyper, skewed(40, 70), 40, width, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", range(1, 8))
def test_short_rows_on_several_stages(width: int, dtype: Any) -> None:
    for decay in (0.0, 0.01):
        check(
            "ftrl",
            {"learning_rate": 0.1, "l1": 0.1},
            skewed(900, 3000),
            900,
            width,
            dtype,
            None,
            decay,
        )


@both()
@pytest.mark.parametrize("width", range(1, 8))
def test_short_rows_with_masters_of_16_bits(width: int, half: Any) -> None:
    check("adagrad", RATE, skewed(900, 3000), 900, width, np.float32, half)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("rule", "hyper"), SPARSE_CASES, ids=SPARSE_IDS)
def test_rows_in_ascending_order(rule: str, hyper: Any, n_threads: int) -> None:
    """Those that don't repeat are updated as they are listed, by tasks of some rows each."""
    ids = np.flatnonzero(np.random.default_rng(0).random(4000) < 0.7)
    with threads(n_threads):
        for width in (1, 2, 7, 16, 33):
            for decay in (0.0, 0.01):
                check(rule, hyper, ids, 4000, width, np.float32, decay=decay)
        check(rule, hyper, np.append(ids, ids[-1]), 4000, 8, np.float64)


@both()
@pytest.mark.parametrize("width", [1, 4, 16, 2049])
@pytest.mark.parametrize("rule", ["adagrad", "rowwise_adagrad", "gradient_descent"])
def test_rows_in_ascending_order_with_masters_of_16_bits(rule: str, width: int, half: Any) -> None:
    case = next(case for case in SPARSE_CASES if case[0] == rule)
    ids = np.flatnonzero(np.random.default_rng(width).random(1500) < 0.8)
    check(*case, ids, 1500, width, np.float32, half, 0.01)


@pytest.mark.parametrize("n_rows", [300, 100_000])
def test_the_count_of_rows_that_are_updated_in_turn(n_rows: int) -> None:
    """Bits of a table are all counted, or the look-ups one by one, whichever are fewer."""
    for n in (5, 400, 20_000):
        for n_threads in (1, 2):
            with threads(n_threads):
                check("gradient_descent", RATE, skewed(n_rows, n), n_rows, 2, np.float32)


@pytest.mark.parametrize("width", range(1, 8))
def test_short_rows_of_which_the_last_comes_twice(width: int) -> None:
    ids = np.random.default_rng(width).permutation(500)
    for n in (2, 17, 500):
        check("adagrad", RATE, np.append(ids[:n], ids[0]), 500, width, np.float32)


@pytest.mark.parametrize("width", range(1, 9))
def test_a_zero_keeps_its_sign(width: int) -> None:
    """A weight of -0 less a gradient of -0 is 0, less one of 0 it is -0."""
    ids = np.array([3, 1, 3, 2])
    values = np.full((4, width), -0.0, np.float32)
    values[0] = 0.0
    w, accumulator = np.full((5, width), -0.0, np.float32), np.ones((5, width), np.float32)
    run("adagrad", w, [accumulator], Slices(values, ids), (0.1,))
    assert np.signbit(w).all(1).tolist() == [True, False, False, True, True]
    assert np.signbit(w).any(1).tolist() == [True, False, False, True, True]


@pytest.mark.parametrize("rule", ["adagrad", "rowwise_adagrad", "gradient_descent"])
def test_rows_that_come_very_often(rule: str) -> None:
    """Their look-ups are summed up run by run."""
    case = next(case for case in SPARSE_CASES if case[0] == rule)
    times = (1, 63, 64, 65, 127, 128, 129, 400)
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(len(times)), times))
    for width in (8, 20, 64, 200):
        check(*case, ids, len(times), width, np.float32)


@pytest.mark.parametrize(("rule", "hyper"), SPARSE_CASES, ids=SPARSE_IDS)
def test_rows_around_the_size_of_a_buffer(rule: str, hyper: Any) -> None:
    for width in WIDE:
        check(rule, hyper, skewed(6, 9, np.int32), 6, width, np.float32)


@both()
@pytest.mark.parametrize("rule", ["adagrad", "rowwise_adagrad", "gradient_descent"])
def test_masters_of_16_bits(rule: str, half: Any) -> None:
    case = next(case for case in SPARSE_CASES if case[0] == rule)
    for width in (3, 16, 33, 2049):
        # Of a row that comes more than once each update would be rounded on the way.
        ids = np.random.default_rng(width).permutation(40)[:30]
        check(*case, ids, 40, width, np.float32, half)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("rule", ["adagrad", "rowwise_adagrad", "gradient_descent"])
def test_a_hot_row(rule: str, n_threads: int) -> None:
    """A bucket of thousands of look-ups of one row, between buckets of many."""
    case = next(case for case in SPARSE_CASES if case[0] == rule)
    ids = skewed(3000, 6000)
    with threads(n_threads):
        check(*case, ids, 3000, 16, np.float32)


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_many_wide_rows(n_threads: int, decay: float) -> None:
    """Of more than 32 MiB even one thread updates those by buckets that need not be sorted."""
    case = next(case for case in SPARSE_CASES if case[0] == "gradient_descent")
    n_rows, width = 4100, 2050
    ids = np.random.default_rng(0).permutation(np.arange(4300) % n_rows)
    with threads(n_threads):
        check(*case, ids, n_rows, width, np.float32, decay=decay)


@pytest.mark.parametrize("rule", ["adagrad", "rowwise_adagrad", "gradient_descent"])
@pytest.mark.parametrize("offset", [0, 4, 12, 60])
def test_rows_that_begin_anywhere_in_a_line(rule: str, offset: int) -> None:
    """Memory of users is aligned to an element, and not to a line of the cache."""
    _, hyper = next(case for case in SPARSE_CASES if case[0] == rule)
    name, scalars = kernel_of(rule, hyper), scalars_of(rule, hyper)
    ids = skewed(50, 80)

    def result(at: int) -> list[Array]:
        rng = np.random.default_rng(3)
        w, slots = state(name, (50, 20), np.float32, rng)
        values = rng.normal(size=(80, 20)).astype(np.float32)
        moved = []
        for array in (w, values):
            memory = np.zeros(array.nbytes + 128, np.uint8)
            start = (at - memory.ctypes.data) % 64
            moved.append(memory[start : start + array.nbytes].view(np.float32).reshape(array.shape))
            moved[-1][...] = array
        run(name, moved[0], slots.values(), Slices(moved[1], ids), scalars)
        return [moved[0], *slots.values()]

    for one, other in zip(result(0), result(offset), strict=True):
        np.testing.assert_array_equal(one, other)
