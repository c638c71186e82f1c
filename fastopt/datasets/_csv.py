"""Reads CSV files into typed columns, chunk by chunk, and knows the line of every row."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import numpy as np

from ._errors import DataError
from ._label import GAPS, LabelReader, as_number, two_values
from ._table import CategoricalColumn, Label, NumericColumn, Table
from ._text import open_text

__all__ = ["read_csv"]

# The first chunk tells which columns are numbers and which are names.
_CHUNK = 10_000
_LABEL_NAMES = ("label", "target", "class", "y", "click", "clicked", "outcome")
_QUOTED = re.compile(r'"[^"]*"')

Rows = tuple[list[list[str]], list[int]]


class _ColumnReader(Protocol):
    def add(self, texts: Sequence[str], lines: Sequence[int]) -> None: ...
    def finish(self) -> NumericColumn | CategoricalColumn | Label: ...


class _NumericReader:
    """Collects numbers; a gap is NaN."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._chunks: list[np.ndarray] = []

    def add(self, texts: Sequence[str], lines: Sequence[int]) -> None:
        """Take the fields of the rows that begin on `lines`."""
        try:
            numbers = np.array([np.nan if text in GAPS else float(text) for text in texts])
        except ValueError:
            numbers = np.array([np.inf])  # the loop below finds which
        if np.isinf(numbers).any() or "_" in "".join(texts):
            for text, line in zip(texts, lines, strict=True):
                if text not in GAPS and as_number(text) is None:
                    raise DataError(
                        self._path,
                        f"{text!r} in the numeric column {self._name!r} is not a finite number",
                        line,
                    )
        self._chunks.append(numbers)

    def finish(self) -> NumericColumn:
        """Return the column."""
        return NumericColumn(self._name, np.concatenate(self._chunks))


class _Codes(dict[str, int]):
    """Numbers the distinct values by first appearance; a gap is -1."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(GAPS, -1))

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self) - len(GAPS))


class _CategoricalReader:
    """Collects names under their codes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._codes = _Codes()
        self._chunks: list[np.ndarray] = []

    def add(self, texts: Sequence[str], lines: Sequence[int]) -> None:
        """Take the fields of a chunk of rows."""
        codes = map(self._codes.__getitem__, texts)
        self._chunks.append(np.fromiter(codes, dtype=np.int32, count=len(texts)))

    def finish(self) -> CategoricalColumn:
        """Return the column."""
        categories = tuple(self._codes)[len(GAPS) :]
        return CategoricalColumn(self._name, np.concatenate(self._chunks), categories)


def read_csv(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    numeric: Collection[str] = (),
    categorical: Collection[str] = (),
    ignore: Collection[str] = (),
) -> Table:
    r"""Read a CSV file with a binary label.

    Fields are separated by commas, tabs or semicolons, whichever the first line has most of. A
    first line without any number is the header; without a header columns are named ``column1``,
    ``column2`` and so on. Gaps are empty fields, ``?``, ``NA``, ``NaN``, ``null`` and ``none``.

    Parameters
    ----------
    path : str or path-like
        The file; gzip is recognised.
    label : str, optional
        The label's column. By default a column called ``label``, ``target``, ``class``, ``y``,
        ``click``, ``clicked`` or ``outcome``; else the last or the first column, if it has
        exactly two values.
    numeric, categorical : collection of str
        Columns that are to be numbers or names. Every other column is numeric if all its fields
        in the first 10,000 rows are numbers or gaps, and categorical otherwise.
    ignore : collection of str
        Columns to leave out.

    Returns
    -------
    Table
        The label and the columns, in the order of the file.

    Raises
    ------
    DataError
        The file cannot be read, or a line is malformed; the message has the file and the line.

    Examples
    --------
    >>> import os, tempfile
    >>> from fastopt.datasets import read_csv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "clicks.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("click,price,site\n0,1.5,news\n1,,shop\n")
    ...     table = read_csv(path)
    >>> table.label.values
    array([0., 1.], dtype=float32)
    >>> table["price"].values
    array([1.5, nan])
    >>> table["site"].categories
    ('news', 'shop')
    """
    name = os.fspath(path)
    with open_text(path) as text:
        chunks = _chunks(text, name)
        header, first = next(chunks)
        _check_names(
            name, header, label=label, numeric=numeric, categorical=categorical, ignore=ignore
        )
        if label is None:
            label = _find_label(name, header, first[0], {*numeric, *categorical, *ignore})
        readers: list[_ColumnReader | None] = []
        for position, column in enumerate(header):
            if column == label:
                readers.append(LabelReader(name, column))
            elif column in ignore:
                readers.append(None)
            elif column in numeric or (
                column not in categorical and _all_numbers(row[position] for row in first[0])
            ):
                readers.append(_NumericReader(name, column))
            else:
                readers.append(_CategoricalReader(column))
        for rows, lines in chain([first], (chunk for _, chunk in chunks)):
            for reader, texts in zip(readers, zip(*rows, strict=True), strict=True):
                if reader is not None:
                    reader.add(texts, lines)
    finished = [reader.finish() for reader in readers if reader is not None]
    labels = [column for column in finished if isinstance(column, Label)]
    columns = tuple(column for column in finished if not isinstance(column, Label))
    if not columns:
        raise DataError(name, "there is no column but the label")
    return Table(labels[0], columns)


def _chunks(text: Iterable[str], path: str) -> Iterator[tuple[list[str], Rows]]:
    """Yield the header and, chunk by chunk, rows of its width with the lines they begin on."""
    records = _records(text, path)
    first = next(records, None)
    if first is None:
        raise DataError(path, "the file is empty")
    fields, line = first
    if len(fields) < 2:
        raise DataError(
            path, "one field only; fields are separated by commas, tabs or semicolons", line
        )
    rows: list[list[str]] = []
    lines: list[int] = []
    if any(as_number(field) is not None for field in fields):
        header = [f"column{number}" for number in range(1, len(fields) + 1)]
        rows.append(fields)
        lines.append(line)
    else:
        header = fields
        _check_header(path, header, line)
    empty = True
    for fields, line in records:
        if len(fields) != len(header):
            raise DataError(
                path, f"{len(fields)} fields where the first line has {len(header)}", line
            )
        rows.append(fields)
        lines.append(line)
        if len(rows) == _CHUNK:
            yield header, (rows, lines)
            rows, lines, empty = [], [], False
    if rows:
        yield header, (rows, lines)
    elif empty:
        raise DataError(path, "there is a header and no row")


def _records(text: Iterable[str], path: str) -> Iterator[tuple[list[str], int]]:
    """Yield each record that is not blank with the line it begins on."""
    lines = iter(text)
    top = next(lines, "")
    outside = _QUOTED.sub("", top)
    delimiter = max(",\t;", key=outside.count)
    # A run of spaces after a tab may be a field of its own; after a comma it is decoration.
    reader = csv.reader(
        chain([top], lines) if top else lines,
        delimiter=delimiter,
        skipinitialspace=delimiter != "\t",
        strict=True,
    )
    begin = 1
    try:
        for fields in reader:
            if fields:
                yield fields, begin
            begin = reader.line_num + 1
    except csv.Error as error:
        message = str(error)
        if "unexpected end" in message or "field limit" in message or "field larger" in message:
            message = "a quoted field begins here and is not closed"
        raise DataError(path, message, begin) from error


def _check_header(path: str, header: list[str], line: int) -> None:
    seen: set[str] = set()
    for column in header:
        if not column:
            raise DataError(path, f"column {header.index(column) + 1} has no name", line)
        if column in seen:
            raise DataError(path, f"two columns are called {column!r}", line)
        seen.add(column)


def _check_names(path: str, header: list[str], **asked: str | Collection[str] | None) -> None:
    """Check that every column a caller names exists and has one role."""
    role: dict[str, str] = {}
    for argument, names in asked.items():
        for column in [names] if isinstance(names, str) else names or ():
            if column not in header:
                raise DataError(
                    path,
                    f"{argument} names the column {column!r}, which the file does not have;"
                    f" it has {', '.join(header)}",
                )
            if role.setdefault(column, argument) != argument:
                raise DataError(
                    path, f"the column {column!r} is both {role[column]} and {argument}"
                )


def _find_label(path: str, header: list[str], rows: list[list[str]], taken: set[str]) -> str:
    for column in header:
        if column.lower() in _LABEL_NAMES and column not in taken:
            return column
    for position in (-1, 0):
        if header[position] not in taken and two_values(row[position] for row in rows):
            return header[position]
    raise DataError(
        path,
        "no column is called label and neither the last nor the first has two values; name the"
        f" label, one of {', '.join(header)}",
    )


def _all_numbers(texts: Iterable[str]) -> bool:
    """Whether a column is numeric: every field a number or a gap, and one at least a number."""
    distinct = set(texts) - GAPS
    return bool(distinct) and all(as_number(text) is not None for text in distinct)
