"""Data to train on: the Census Income data, and readers for CSV and LIBSVM files."""

from __future__ import annotations

from ._census import load_census
from ._csv import read_csv
from ._errors import DataError
from ._libsvm import is_libsvm, read_libsvm
from ._table import CategoricalColumn, Label, NumericColumn, SparseRows, Table

__all__ = [
    "CategoricalColumn",
    "DataError",
    "Label",
    "NumericColumn",
    "SparseRows",
    "Table",
    "is_libsvm",
    "load_census",
    "read_csv",
    "read_libsvm",
]
