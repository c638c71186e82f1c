"""Hashing, crossing, scaling and splitting."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fastopt.datasets import CategoricalColumn, Label, NumericColumn, SparseRows, Table
from fastopt.demo.features import (
    Bags,
    Examples,
    SparseEncoder,
    TableEncoder,
    TooManyRowsError,
    split,
)
from fastopt.demo.hashing import bucket, cross, hash_strings, mix
from tests.demo.helpers import PYTHON, environment


def label(n: int) -> Label:
    return Label("label", (np.arange(n) % 2).astype(np.float32), ("0", "1"))


def categorical(name: str, codes: list[int], *categories: str) -> CategoricalColumn:
    return CategoricalColumn(name, np.array(codes, np.int32), categories)


def numeric(name: str, values: list[float]) -> NumericColumn:
    return NumericColumn(name, np.array(values, np.float64))


def encode(
    table: Table, rows: int | None = None, buckets: int = 100
) -> tuple[TableEncoder, Examples]:
    encoder = TableEncoder(table, np.arange(len(table) if rows is None else rows), buckets)
    return encoder, encoder.encode(table)


class TestHashing:
    def test_hashes_never_change(self) -> None:
        """The same in other processes, where Python's own hashes of strings differ."""
        program = "from fastopt.demo.hashing import *; print(hash_strings(['a', 'é', '']).tolist())"
        outputs = {
            subprocess.run(
                [*PYTHON, "-c", program],
                env=environment(PYTHONHASHSEED=seed),
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for seed in ("1", "2")
        }
        assert outputs == {str(hash_strings(["a", "é", ""]).tolist())}
        # blake2b of "a" to 8 bytes, as b2sum --length 64 prints it
        assert hash_strings(["a"])[0] == int.from_bytes(bytes.fromhex("40f89e395b66422f"), "little")

    def test_bytes_that_are_not_utf8(self) -> None:
        one, two = hash_strings(["caf\udce9", "caf\udcea"])
        assert one != two

    def test_mix_is_splitmix64(self) -> None:
        """The first outputs of the reference generator seeded with 0."""
        golden = 0x9E3779B97F4A7C15
        states = np.array([0, golden], dtype=np.uint64)
        assert [hex(x) for x in mix(states)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4"]

    def test_cross_depends_on_order(self) -> None:
        a, b = hash_strings(["x"]), hash_strings(["y"])
        assert cross(a, b)[0] != cross(b, a)[0]
        assert cross(a, a)[0] != cross(b, b)[0]

    def test_buckets_are_even(self) -> None:
        counts = np.bincount(bucket(hash_strings(map(str, range(100_000))), 10), minlength=10)
        # 10,000 each, standard deviation 95: six of them
        assert np.abs(counts - 10_000).max() < 570


class TestBags:
    @given(
        lengths=st.lists(st.integers(0, 4), min_size=1, max_size=8),
        rows=st.lists(st.integers(0, 7), max_size=10),
        weighted=st.booleans(),
    )
    def test_take(self, lengths: list[int], rows: list[int], weighted: bool) -> None:
        rows = [row for row in rows if row < len(lengths)]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.arange(offsets[-1], dtype=np.int32)
        weights = ids.astype(np.float32) if weighted else None
        taken = Bags(ids, offsets, weights).take(np.array(rows, dtype=np.int64))
        expected = [list(ids[offsets[row] : offsets[row + 1]]) for row in rows]
        np.testing.assert_array_equal(np.diff(taken.offsets), [len(e) for e in expected])
        flat = [i for e in expected for i in e]
        np.testing.assert_array_equal(taken.ids, flat)
        if weighted:
            np.testing.assert_array_equal(taken.weights, flat)
        else:
            assert taken.weights is None


class TestTableEncoder:
    def test_layout_and_ranges(self) -> None:
        table = Table(
            label(4),
            (
                categorical("c", [0, 1, -1, 0], "x", "y"),
                numeric("n", [1, 2, 3, np.nan]),
                categorical("d", [0, 0, 1, 1], "x", "z"),
            ),
        )
        encoder, examples = encode(table)
        layout = encoder.layout
        assert (layout.numeric, layout.columns, layout.has_bags) == (1, 3, False)
        # 101 rows a categorical column, 3 quantiles and a gap for the numeric one
        assert layout.table_rows == 101 + 4 + 101
        assert layout.crosses == ("c x n", "c x d", "n x d")
        assert layout.wide_rows == layout.table_rows + 3 * 100
        low, high = np.array([0, 101, 105]), np.array([101, 105, 206])
        assert ((examples.ids >= low) & (examples.ids < high)).all()
        assert examples.ids.dtype == np.int32

    def test_gaps(self) -> None:
        table = Table(label(3), (categorical("c", [0, -1, -1], "x"), numeric("n", [5, np.nan, 7])))
        _, examples = encode(table)
        np.testing.assert_array_equal(examples.ids[1], [0, 101])
        assert examples.ids[0, 0] > 0
        np.testing.assert_array_equal(examples.numeric[:, 0], [-1, 0, 1])

    def test_equal_values_share_rows_and_codes_do_not_matter(self) -> None:
        one = Table(label(2), (categorical("c", [0, 1], "x", "y"),))
        two = Table(label(2), (categorical("c", [0, 1], "y", "x"),))
        _, first = encode(one)
        _, second = encode(two)
        np.testing.assert_array_equal(first.ids, second.ids[::-1])

    def test_crosses_tell_pairs_apart(self) -> None:
        table = Table(
            label(4),
            (categorical("a", [0, 0, 1, 1], "x", "y"), categorical("b", [0, 1, 0, 1], "x", "y")),
        )
        encoder, examples = encode(table, buckets=10_000)
        wide = examples.wide.ids.reshape(4, 3)
        assert len(set(wide[:, 2])) == 4
        assert (wide[:, 2] >= encoder.layout.table_rows).all()
        assert (wide[:, 2] < encoder.layout.wide_rows).all()
        np.testing.assert_array_equal(wide[:, :2], examples.ids)
        np.testing.assert_array_equal(examples.wide.offsets, [0, 3, 6, 9, 12])

    def test_crossed_are_columns_with_few_values_names_first(self) -> None:
        n = 40
        columns: list[NumericColumn | CategoricalColumn] = [
            categorical(f"c{k}", [i % k for i in range(n)], *map(str, range(k)))
            for k in range(2, 11)
        ]
        columns.append(categorical("constant", [0] * n, "x"))
        columns.append(numeric("two", [i % 2 for i in range(n)]))
        encoder, _ = encode(Table(label(n), tuple(columns)))
        assert len(encoder.layout.crosses) == 28
        crossed = {name for pair in encoder.layout.crosses for name in pair.split(" x ")}
        assert crossed == {f"c{k}" for k in range(2, 10)}

    def test_only_training_rows_are_learnt_from(self) -> None:
        """The held-out rows have another mean, and values that occur nowhere else."""
        table = Table(label(4), (numeric("n", [1, 3, 1000, 2000]),))
        encoder, examples = encode(table, rows=2)
        np.testing.assert_array_equal(examples.numeric[:, 0], [-1, 1, 4, 4])
        assert encoder.layout.table_rows == 3  # two quantiles and a gap

    def test_constant_and_empty_numeric_columns(self) -> None:
        table = Table(label(3), (numeric("n", [7, 7, 7]), numeric("m", [np.nan] * 3)))
        encoder, examples = encode(table)
        np.testing.assert_array_equal(examples.numeric, np.zeros((3, 2)))
        np.testing.assert_array_equal(examples.ids, [[1, 2]] * 3)
        assert encoder.layout.crosses == ()

    @given(
        npst.arrays(
            np.float64,
            st.integers(2, 20),
            elements=st.floats(allow_nan=True, allow_infinity=False),
        )
    )
    def test_numbers_stay_finite(self, values: np.ndarray) -> None:
        table = Table(label(len(values)), (numeric("n", list(values)),))
        encoder, examples = encode(table)
        assert np.isfinite(examples.numeric).all()
        assert np.abs(examples.numeric).max() <= 4
        assert examples.ids.min() >= 0
        assert examples.ids.max() < encoder.layout.table_rows
        np.testing.assert_array_equal(examples.ids[:, 0] == 0, np.isnan(values))

    def test_quantiles_keep_the_order(self) -> None:
        values = np.random.default_rng(0).standard_cauchy(500)
        _, examples = encode(Table(label(500), (numeric("n", list(values)),)))
        assert (np.diff(examples.ids[np.argsort(values), 0]) >= 0).all()
        # 500 rows in 16 quantiles are 31 or 32 each
        assert set(np.bincount(examples.ids[:, 0])[1:]) == {31, 32}

    def test_too_many_rows(self) -> None:
        columns = tuple(categorical(f"c{k}", [0, 1], "x", "y") for k in range(3))
        with pytest.raises(TooManyRowsError, match="wide weights; at most 2,147,483,647"):
            TableEncoder(Table(label(2), columns), np.arange(2), 2**30)


class TestSparseEncoder:
    @staticmethod
    def rows(indices: list[int], values: list[float]) -> SparseRows:
        n = len(indices)
        return SparseRows(
            label(n), np.arange(n + 1), np.array(indices, np.int64), np.array(values, np.float64)
        )

    def test_indices_that_fit_are_rows(self) -> None:
        data = self.rows([0, 5, 9], [1, 1, 1])
        encoder = SparseEncoder(data, np.arange(3), 10)
        assert encoder.layout.table_rows == encoder.layout.wide_rows == 10
        np.testing.assert_array_equal(encoder.encode(data).bags.ids, [0, 5, 9])

    def test_indices_that_do_not_fit_are_hashed(self) -> None:
        data = self.rows([0, 5, 2**62 - 1, 5], [1, 1, 1, 1])
        encoder = SparseEncoder(data, np.arange(4), 10)
        ids = encoder.encode(data).wide.ids
        assert encoder.layout.table_rows == 10
        assert ids[1] == ids[3]
        assert ids.max() < 10

    def test_values_are_scaled_by_the_training_rows(self) -> None:
        data = self.rows([1, 1, 1, 2, 3], [2, -4, 100, 3, 0])
        examples = SparseEncoder(data, np.array([0, 1, 4]), 10).encode(data)
        # 100 / 4 is cut to 4; feature 2 doesn't occur in training
        np.testing.assert_array_equal(examples.bags.weights, [0.5, -1, 4, 3, 0])

    def test_without_features(self) -> None:
        data = SparseRows(label(2), np.zeros(3, np.int64), np.empty(0, np.int64), np.empty(0))
        encoder = SparseEncoder(data, np.arange(2), 10)
        assert encoder.layout.table_rows == 1
        assert len(encoder.encode(data).take(np.array([1, 0]))) == 2


class TestSplit:
    @pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1000])
    def test_a_third_is_held_out(self, n: int) -> None:
        training, held_out = split(n)
        assert len(held_out) == n // 3
        np.testing.assert_array_equal(np.sort(np.concatenate([training, held_out])), np.arange(n))

    def test_rows_are_spread_evenly(self) -> None:
        _, held_out = split(30_000)
        counts = np.bincount(held_out // 3000, minlength=10)
        # 1000 a tenth, standard deviation 26: five of them
        assert np.abs(counts - 1000).max() < 130
