"""From columns to what a model reads: numbers, rows of an embedding table, lists of weighted rows.

Everything that is learnt from data here (means, quantiles, which columns to cross) is learnt from
the training rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fastopt.datasets import CategoricalColumn, NumericColumn, SparseRows, Table

from .hashing import Hashes, bucket, cross, hash_strings, mix

Rows = NDArray[np.int64]
Ids = NDArray[np.int32]

_QUANTILES = 16
# A pair of columns with few values repeats often enough to learn from; all pairs of eight are 28.
_CROSSED_COLUMNS = 8
_STANDARD_DEVIATIONS = 4.0
_MAX_ROWS = 2**31 - 1


@dataclass(frozen=True)
class Bags:
    """For each example a list of ids, with weights: what a pooled look-up reads.

    Example ``i`` has the entries ``offsets[i]:offsets[i + 1]``.
    """

    ids: Ids
    offsets: Rows
    weights: NDArray[np.float32] | None = None

    def take(self, rows: Rows) -> Bags:
        """Return the bags of the examples `rows`."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # Entry k of the result is the (k - offsets[bag])-th of its bag.
        entries = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        weights = None if self.weights is None else self.weights[entries]
        return Bags(self.ids[entries], offsets, weights)


@dataclass(frozen=True)
class Examples:
    """Encoded rows, or a batch of them.

    Attributes
    ----------
    label : ndarray of float32, shape (n,)
        0 or 1.
    numeric : ndarray of float32, shape (n, numeric columns)
        Standardised; a gap is 0, the mean.
    ids : ndarray of int32, shape (n, columns)
        Each column's row of the embedding table.
    bags : Bags or None
        Features of a LIBSVM row: rows of the embedding table.
    wide : Bags
        Rows of the table of wide weights.
    """

    label: NDArray[np.float32]
    numeric: NDArray[np.float32]
    ids: Ids
    bags: Bags | None
    wide: Bags

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: Rows) -> Examples:
        """Return the examples `rows`."""
        return Examples(
            self.label[rows],
            self.numeric[rows],
            self.ids[rows],
            None if self.bags is None else self.bags.take(rows),
            self.wide.take(rows),
        )


@dataclass(frozen=True)
class Layout:
    """The sizes that a model must have to read the examples of an encoder."""

    numeric: int
    columns: int
    has_bags: bool
    table_rows: int
    wide_rows: int
    crosses: tuple[str, ...] = ()


class TooManyRowsError(ValueError):
    """The tables would have more rows than 32-bit ids can number."""


class TableEncoder:
    """Encodes the rows of a `Table`.

    A categorical column owns a range of rows of the embedding table: one for gaps, and
    `hash_buckets` into which its values are hashed. A numeric column is both a standardised number
    and the id of its quantile, so that the model needs not be linear in it. The wide part has a
    weight for each of these rows, and for the hashed pairs of values of crossed columns.

    Parameters
    ----------
    table : Table
        The data.
    rows : ndarray of int64
        The training rows, from which quantiles and the like are learnt.
    hash_buckets : int
        Rows for the values of a categorical column, and for those of a crossed pair.
    """

    def __init__(self, table: Table, rows: Rows, hash_buckets: int) -> None:
        self._buckets = hash_buckets
        self._scales = [
            _Scale.fit(column.values[rows])
            for column in table.columns
            if isinstance(column, NumericColumn)
        ]
        sizes, distinct = [], []
        scales = iter(self._scales)
        for column in table.columns:
            if isinstance(column, NumericColumn):
                values = len(next(scales).edges) + 1
                sizes.append(values + 1)
                distinct.append((True, values))
            else:
                sizes.append(hash_buckets + 1)
                distinct.append((False, len(np.unique(column.codes[rows]))))
        first = np.concatenate([[0], np.cumsum(sizes)])
        self._first = first[:-1]
        crossable = sorted(
            (is_numeric, values, position)
            for position, (is_numeric, values) in enumerate(distinct)
            if values > 1
        )[:_CROSSED_COLUMNS]
        self._crosses = list(combinations(sorted(position for *_, position in crossable), 2))
        table_rows = int(first[-1])
        wide_rows = table_rows + len(self._crosses) * hash_buckets
        if wide_rows > _MAX_ROWS:
            raise TooManyRowsError(
                f"{hash_buckets:,} hash buckets a column make {wide_rows:,} wide weights; at most"
                f" {_MAX_ROWS:,} are possible"
            )
        names = [column.name for column in table.columns]
        self.layout = Layout(
            numeric=len(self._scales),
            columns=len(table.columns),
            has_bags=False,
            table_rows=table_rows,
            wide_rows=wide_rows,
            crosses=tuple(f"{names[a]} x {names[b]}" for a, b in self._crosses),
        )

    def encode(self, table: Table) -> Examples:
        """Encode all rows of a table with the columns of the first."""
        ids: list[Rows] = []
        hashes: list[Hashes] = []
        numbers: list[NDArray[np.float64]] = []
        scales = iter(self._scales)
        for column in table.columns:
            if isinstance(column, NumericColumn):
                scale = next(scales)
                quantile = scale.quantile(column.values)
                ids.append(quantile)
                hashes.append(quantile.astype(np.uint64))
                numbers.append(scale.standardise(column.values))
            else:
                column_ids, column_hashes = self._categorical(column)
                ids.append(column_ids)
                hashes.append(column_hashes)
        matrix = (np.stack(ids, axis=1) + self._first).astype(np.int32)
        pairs = [
            self.layout.table_rows
            + k * self._buckets
            + bucket(cross(hashes[a], hashes[b]), self._buckets)
            for k, (a, b) in enumerate(self._crosses)
        ]
        wide = np.concatenate([matrix, *(p[:, None].astype(np.int32) for p in pairs)], axis=1)
        n, width = wide.shape
        numeric = np.stack(numbers, axis=1) if numbers else np.empty((n, 0))
        return Examples(
            label=table.label.values,
            numeric=numeric.astype(np.float32),
            ids=matrix,
            bags=None,
            wide=Bags(wide.reshape(-1), np.arange(n + 1, dtype=np.int64) * width),
        )

    def _categorical(self, column: CategoricalColumn) -> tuple[Rows, Hashes]:
        """Ids within the column's range (0 is a gap), and hashes for the crosses."""
        # The last entry is the gap's: a code of -1 reads it.
        hashes = np.append(hash_strings(column.categories), np.uint64(0))
        ids = np.append(bucket(hashes[:-1], self._buckets) + 1, 0)
        return ids[column.codes], hashes[column.codes]


@dataclass(frozen=True)
class _Scale:
    """How a numeric column is standardised and cut."""

    mean: float
    deviation: float
    edges: NDArray[np.float64]

    @classmethod
    def fit(cls, values: NDArray[np.float64]) -> _Scale:
        known = values[~np.isnan(values)]
        if not len(known):
            return cls(0.0, 1.0, np.empty(0))
        # Scaled first: the squares of numbers near the end of float64's range overflow.
        largest = float(np.abs(known).max()) or 1.0
        deviation = float(np.std(known / largest)) * largest
        shares = np.arange(1, _QUANTILES) / _QUANTILES
        # "higher": cuts are values that occur, so that no quantile is empty.
        cuts = np.unique(np.quantile(known, shares, method="higher"))
        return cls(
            float(np.mean(known / largest)) * largest, deviation or 1.0, cuts[cuts > known.min()]
        )

    def standardise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        scaled = (values - self.mean) / self.deviation
        return np.nan_to_num(np.clip(scaled, -_STANDARD_DEVIATIONS, _STANDARD_DEVIATIONS))

    def quantile(self, values: NDArray[np.float64]) -> Rows:
        """Return the quantiles' numbers from 1; 0 is a gap."""
        found = np.searchsorted(self.edges, values, side="right") + 1
        return np.where(np.isnan(values), 0, found)


class SparseEncoder:
    """Encodes `SparseRows`: a feature is a row of both tables, its value the weight.

    Values are divided by the feature's largest magnitude in the training rows. Indices from
    `hash_buckets` on don't fit the tables, so if there are any, all are hashed.
    """

    def __init__(self, data: SparseRows, rows: Rows, hash_buckets: int) -> None:
        self._buckets = hash_buckets
        self._hashed = bool(data.indices.max(initial=0) >= hash_buckets)
        ids = self._ids(data)
        training = np.zeros(len(data), dtype=bool)
        training[rows] = True
        entries = np.repeat(training, np.diff(data.indptr))
        self._scale = np.zeros(hash_buckets)
        np.maximum.at(self._scale, ids[entries], np.abs(data.values[entries]))
        self._scale[self._scale == 0] = 1.0
        size = hash_buckets if self._hashed else int(ids.max(initial=0)) + 1
        self.layout = Layout(numeric=0, columns=0, has_bags=True, table_rows=size, wide_rows=size)

    def _ids(self, data: SparseRows) -> Rows:
        if not self._hashed:
            return data.indices
        return bucket(mix(data.indices.astype(np.uint64)), self._buckets)

    def encode(self, data: SparseRows) -> Examples:
        """Encode all rows."""
        ids = self._ids(data)
        weights = np.clip(
            data.values / self._scale[ids], -_STANDARD_DEVIATIONS, _STANDARD_DEVIATIONS
        )
        bags = Bags(ids.astype(np.int32), data.indptr, weights.astype(np.float32))
        n = len(data)
        return Examples(
            label=data.label.values,
            numeric=np.empty((n, 0), np.float32),
            ids=np.empty((n, 0), np.int32),
            bags=bags,
            wide=bags,
        )


def split(n: int) -> tuple[Rows, Rows]:
    """Choose a third of `n` rows to be held out, always the same; return training and test rows.

    Rows are chosen by a hash of their number: files sorted by label or time are split evenly.
    """
    order = np.argsort(mix(np.arange(n, dtype=np.uint64)), kind="stable")
    held_out = n // 3
    return np.sort(order[held_out:]), np.sort(order[:held_out])
