"""All sparse tables of a step in one sweep: the same bits as one table after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastopt._kernels._plan import Plan
from tests.kernels.support import Key, Slices, scalars_of, state, threads

F32 = np.float32
# Rows, width, look-ups: none, few, so many that a table is cut into chunks; short and long rows.
TABLES = [(50, 16, 0), (7, 1, 3), (90_000, 2, 40_000), (500, 5, 900), (3_000, 64, 6_000)]
RULES = {
    "gradient_descent": {"learning_rate": 0.1},  # takes duplicates one after the other
    "adagrad": {"learning_rate": 0.1},
    "rowwise_adagrad": {"learning_rate": 0.1},  # sums over a row
}


def tables(rule: str) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    made = [state(rule, (rows, width), F32, rng) for rows, width, _ in TABLES]
    return [w for w, _ in made], [tuple(slots.values()) for _, slots in made]


def gradients(unique: bool = False) -> list[Slices]:
    rng = np.random.default_rng(5)
    found = []
    for k, (rows, width, n) in enumerate(TABLES):
        ids = rng.permutation(rows)[: min(n, rows)] if unique else rng.integers(0, rows, n)
        ids = ids.astype(np.int32 if k % 2 else np.int64)
        found.append(Slices(rng.normal(size=(ids.size, width)).astype(F32), ids))
    return found


def sweep(rule: str, scalars: Any, found: list[Slices], n_threads: int, **how: Any) -> list[Any]:
    ws, slots = tables(rule)
    keys = [Key() for _ in ws]
    with threads(n_threads):
        plan = Plan(rule, keys, ws, slots, Slices, **how)
        for _ in range(2):
            assert plan.bind(list(zip(found, keys, strict=True)))
            plan.run(scalars)
            touched = plan.rows_touched
            plan.release()
    assert touched == sum(np.unique(each.indices).size for each in found)
    return [*ws, *(slot for each in slots for slot in each)]


def one_by_one(rule: str, scalars: Any, found: list[Slices], **how: Any) -> list[Any]:
    ws, slots = tables(rule)
    for _ in range(2):
        for w, each, gradient in zip(ws, slots, found, strict=True):
            key = Key()
            plan = Plan(rule, [key], [w], [each], Slices, **how)
            assert plan.bind([(gradient, key)])
            plan.run(scalars)
    return [*ws, *(slot for each in slots for slot in each)]


def same(ours: list[Any], others: list[Any]) -> None:
    for a, b in zip(ours, others, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_as_one_table_after_the_other(rule: str, unique: bool, n_threads: int) -> None:
    scalars, found = scalars_of(rule, RULES[rule]), gradients(unique)
    same(sweep(rule, scalars, found, n_threads), one_by_one(rule, scalars, found))


@pytest.mark.parametrize("n_threads", [1, 4])
def test_with_all_rows_updated(n_threads: int) -> None:
    scalars, found = scalars_of("adagrad", RULES["adagrad"]), gradients()
    ours = sweep("adagrad", scalars, found, n_threads, untouched="update")
    same(ours, one_by_one("adagrad", scalars, found, untouched="update"))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n", [10, 3_000, 40_000])
@pytest.mark.parametrize("order", ["any", "unique", "ascending", "one falls", "one repeats"])
@pytest.mark.parametrize("rule", RULES)
def test_tables_that_share_their_indices(rule: str, order: str, n: int, n_threads: int) -> None:
    """Lists that ascend are not counted until a table of wide rows asks for it."""
    rng = np.random.default_rng(1)
    n_rows = 50_000
    shared = rng.integers(0, n_rows, n) if order == "any" else rng.permutation(n_rows)[:n]
    if order not in ("any", "unique"):
        shared.sort()
    if order == "one falls":
        shared[[n // 2, n // 2 - 1]] = shared[[n // 2 - 1, n // 2]]
    if order == "one repeats":
        shared[n // 2] = shared[n // 2 - 1]
    sizes = [(n_rows, 1), (n_rows, 16), (n_rows + 1, 8), (n_rows, 8), (n_rows, 16), (n_rows, 1)]
    values = [rng.normal(size=(n, width)).astype(F32) for _, width in sizes]
    results = []
    for copied in (False, True):
        made = [state(rule, size, F32, np.random.default_rng(2)) for size in sizes]
        keys = [Key() for _ in made]
        with threads(1 if copied else n_threads):
            slots = [tuple(s.values()) for _, s in made]
            plan = Plan(rule, keys, [w for w, _ in made], slots, Slices)
            found = [Slices(v, shared.copy() if copied else shared) for v in values]
            for _ in range(2):
                assert plan.bind(list(zip(found, keys, strict=True)))
                plan.run(scalars_of(rule, RULES[rule]))
            assert plan.rows_touched == len(sizes) * np.unique(shared).size
        results.append([a for w, s in made for a in (w, *s.values())])
    same(*results)


def test_a_table_that_shares_in_one_step_loads_its_own_in_the_next() -> None:
    ws, keys = [np.zeros((9, 16), F32) for _ in range(2)], [Key(), Key()]
    slots = [(np.ones((9, 16), F32),) for _ in ws]
    plan = Plan("adagrad", keys, ws, slots, Slices)
    ids, others, one = np.array([3, 3, 5]), np.array([8, 0, 8]), np.ones((3, 16), F32)
    for second in (ids, others, ids):
        before = [w.copy() for w in ws]
        assert plan.bind([(Slices(one, ids), keys[0]), (Slices(one, second), keys[1])])
        plan.run((1.0,))
        for w, old, expected in zip(ws, before, (ids, second), strict=True):
            np.testing.assert_array_equal(np.flatnonzero((w != old).any(1)), np.unique(expected))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("bad", [-1, 40_000])
@pytest.mark.parametrize("at", [0, 20_000, 39_999])
def test_a_row_out_of_range_in_a_list_that_ascends(at: int, bad: int, n_threads: int) -> None:
    w, slot, key = np.zeros((40_000, 1), F32), np.ones((40_000, 1), F32), Key()
    ids = np.arange(40_000)
    ids[at] = bad
    with threads(n_threads):
        plan = Plan("adagrad", [key], [w], [(slot,)], Slices)
        gradient = Slices(np.ones((40_000, 1), F32), ids)
        assert not plan.bind([(gradient, key)])
        ids[at] = at
        assert plan.bind([(gradient, key)])


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("at", range(1, len(TABLES)))
def test_an_index_out_of_range_anywhere_binds_nothing(at: int, n_threads: int) -> None:
    found = gradients()
    ws, slots = tables("adagrad")
    keys = [Key() for _ in ws]
    with threads(n_threads):
        plan = Plan("adagrad", keys, ws, slots, Slices)
        good = found[at].indices.copy()
        for bad in (-1, TABLES[at][0]):
            found[at].indices[-1] = bad
            assert not plan.bind(list(zip(found, keys, strict=True)))
            with pytest.raises(RuntimeError, match="no gradients are bound"):
                plan.run((0.1,))
        found[at].indices[:] = good
        assert plan.bind(list(zip(found, keys, strict=True)))


@pytest.mark.parametrize("length", [3, 4_001])
def test_indices_whose_length_a_later_gradient_changes(length: int) -> None:
    """Properties of gradients run Python, while earlier gradients are bound."""
    ids = np.arange(4_000)

    class Cutting(Slices):
        armed = False

        @property
        def dense_shape(self) -> None:  # type: ignore[override]
            if self.armed:
                ids.resize(length, refcheck=False)

        @dense_shape.setter
        def dense_shape(self, value: Any) -> None:
            pass

    ws, keys = [np.zeros((5_000, 2), F32) for _ in range(2)], [Key(), Key()]
    slots = [(np.ones((5_000, 2), F32),) for _ in ws]
    plan = Plan("adagrad", keys, ws, slots, Cutting)
    first = Cutting(np.ones((4_000, 2), F32), ids)
    second = Cutting(np.ones((2, 2), F32), np.arange(2))
    second.armed = True
    assert not plan.bind([(first, keys[0]), (second, keys[1])])
    assert not any(w.any() for w in ws)
