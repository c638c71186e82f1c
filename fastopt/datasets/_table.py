"""What the readers return: a table of typed columns, or sparse rows, each with a binary label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["CategoricalColumn", "Label", "NumericColumn", "SparseRows", "Table"]


@dataclass(frozen=True)
class Label:
    """A label with two values.

    Attributes
    ----------
    name : str
        The column's name.
    values : ndarray of float32, shape (rows,)
        0 or 1.
    meaning : tuple of str
        What the file calls 0 and what it calls 1.
    """

    name: str
    values: NDArray[np.float32]
    meaning: tuple[str, str]


@dataclass(frozen=True)
class NumericColumn:
    """A column of numbers.

    Attributes
    ----------
    name : str
        The column's name.
    values : ndarray of float64, shape (rows,)
        NaN where the file has a gap.
    """

    name: str
    values: NDArray[np.float64]


@dataclass(frozen=True)
class CategoricalColumn:
    """A column of names.

    Attributes
    ----------
    name : str
        The column's name.
    codes : ndarray of int32, shape (rows,)
        Positions in `categories`; -1 where the file has a gap.
    categories : tuple of str
        The distinct values, by first appearance.
    """

    name: str
    codes: NDArray[np.int32]
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """The rows of a CSV file.

    Attributes
    ----------
    label : Label
        The label.
    columns : tuple of NumericColumn or CategoricalColumn
        All other columns, in the order of the file.
    """

    label: Label
    columns: tuple[NumericColumn | CategoricalColumn, ...]

    def __len__(self) -> int:
        return len(self.label.values)

    def __getitem__(self, name: str) -> NumericColumn | CategoricalColumn:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


@dataclass(frozen=True)
class SparseRows:
    """The rows of a LIBSVM file, in the three arrays of a compressed sparse row matrix.

    Attributes
    ----------
    label : Label
        The label.
    indptr : ndarray of int64, shape (rows + 1,)
        Row ``i`` has the entries ``indptr[i]:indptr[i + 1]``.
    indices : ndarray of int64, shape (entries,)
        Feature numbers as the file has them, ascending within a row.
    values : ndarray of float64, shape (entries,)
        The features' values, finite.
    """

    label: Label
    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.label.values)

    def to_scipy(self) -> csr_array:
        """Return the features as a `scipy.sparse.csr_array` that shares these arrays."""
        from scipy.sparse import csr_array

        width = int(self.indices.max()) + 1 if len(self.indices) else 0
        return csr_array((self.values, self.indices, self.indptr), shape=(len(self), width))
