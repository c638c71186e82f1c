"""Reads LIBSVM (svmlight) files, chunk by chunk, and knows the line of every row."""

from __future__ import annotations

import os
import re
from itertools import islice

import numpy as np

from ._errors import DataError
from ._label import LabelReader, as_number
from ._table import SparseRows
from ._text import open_text

__all__ = ["is_libsvm", "read_libsvm"]

_CHUNK = 10_000
# A label, then index:value. The regular expression engine is the fastest thing in Python that can
# tell "3:1 2:4" from "3:1:2 4"; the numbers themselves are converted, and checked, in bulk.
_ROW = re.compile(r"\s*([^\s:]+)((?:\s+[0-9]+:[^\s:_]+)*)\s*")
_MAX_INDEX = 2**62


def is_libsvm(path: str | os.PathLike[str]) -> bool:
    """Tell a LIBSVM file from a CSV file by its first row that has a feature.

    Raises
    ------
    DataError
        The file cannot be read.
    """
    with open_text(path) as text:
        for line in islice(text, 100):
            content = line.partition("#")[0]
            fields = content.split()
            if not fields or len(fields) == 1 and not re.search(r"[,;]", content):
                continue
            # "label,site" and "17:20,yes" are CSV, "1 3:0.5" is not; nor is "1 qid:2 3:1".
            return re.match(r"\s*[^\s:]+\s+(qid|\d+):", content) is not None
    return False


def read_libsvm(path: str | os.PathLike[str]) -> SparseRows:
    r"""Read a LIBSVM file with a binary label.

    A row is a label and ``index:value`` pairs with ascending indices, counted from 0 or from 1;
    the rest of a line after ``#`` is a comment. Labels are two numbers (0 and 1, -1 and +1, ...)
    or two words.

    Parameters
    ----------
    path : str or path-like
        The file; gzip is recognised.

    Returns
    -------
    SparseRows
        The label, and the features under the file's own indices.

    Raises
    ------
    DataError
        The file cannot be read, or a line is malformed; the message has the file and the line.

    Examples
    --------
    >>> import os, tempfile
    >>> from fastopt.datasets import read_libsvm
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "clicks.svm")
    ...     with open(path, "w") as file:
    ...         _ = file.write("+1 1:0.5 7:1  # a comment\n-1\n")
    ...     rows = read_libsvm(path)
    >>> rows.label.values
    array([1., 0.], dtype=float32)
    >>> rows.indptr, rows.indices, rows.values
    (array([0, 2, 2]), array([1, 7]), array([0.5, 1. ]))
    """
    name = os.fspath(path)
    labels = LabelReader(name, "label")
    lengths: list[np.ndarray] = []
    indices: list[np.ndarray] = []
    values: list[np.ndarray] = []
    with open_text(path) as text:
        numbered = enumerate(text, start=1)
        while chunk := list(islice(numbered, _CHUNK)):
            rows = []
            for number, line in chunk:
                content = line.partition("#")[0] if "#" in line else line
                match = _ROW.fullmatch(content)
                if match is not None:
                    rows.append((number, match[1], match[2]))
                elif content.strip():
                    raise DataError(name, _what_is_wrong(content), number)
            lines = [row[0] for row in rows]
            if not lines:
                continue
            labels.add([row[1] for row in rows], lines)
            features = [row[2] for row in rows]
            length = np.array([feature.count(":") for feature in features])
            index, value = _numbers(name, features, lines)
            _check_ascending(name, index, length, lines)
            lengths.append(length)
            indices.append(index)
            values.append(value)
    label = labels.finish()
    indptr = np.zeros(len(label.values) + 1, dtype=np.int64)
    np.cumsum(np.concatenate(lengths), out=indptr[1:])
    return SparseRows(label, indptr, np.concatenate(indices), np.concatenate(values))


def _numbers(path: str, features: list[str], lines: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Convert the ``index:value`` pairs of a chunk."""
    fields = " ".join(features).replace(":", " ").split()
    try:
        index = np.array(list(map(int, fields[0::2])), dtype=np.int64)
        value = np.array(list(map(float, fields[1::2])), dtype=np.float64)
    except (ValueError, OverflowError):
        value = np.array([np.inf])  # the loop below finds which
        index = np.array([0])
    if np.isfinite(value).all() and index.max(initial=0) < _MAX_INDEX:
        return index, value
    for feature, line in zip(features, lines, strict=True):
        for pair in feature.split():
            number, _, amount = pair.partition(":")
            if len(number) > 19 or int(number) >= _MAX_INDEX:
                raise DataError(path, f"the index of {pair!r} is too large", line)
            if as_number(amount) is None:
                raise DataError(path, f"the value of {pair!r} is not a finite number", line)
    raise AssertionError("a pair that the bulk conversion refused reads well alone")


def _check_ascending(path: str, index: np.ndarray, length: np.ndarray, lines: list[int]) -> None:
    row = np.repeat(np.arange(len(length)), length)
    bad = np.flatnonzero((index[1:] <= index[:-1]) & (row[1:] == row[:-1]))
    if len(bad):
        at = int(bad[0])
        raise DataError(
            path,
            f"indices must ascend within a row, and {index[at + 1]} follows {index[at]}",
            lines[row[at]],
        )


def _what_is_wrong(content: str) -> str:
    """Say why a line that `_ROW` doesn't match isn't a row."""
    label, *pairs = content.split()
    if ":" in label:
        return f"the row begins with {label!r} where its label should stand"
    for pair in pairs:
        index, colon, value = pair.partition(":")
        if index == "qid":
            return f"{pair!r}: ranking groups (qid) are not supported"
        if not colon or not value or ":" in value:
            return f"{pair!r} is not index:value"
        if not (index.isascii() and index.isdigit()):
            return f"the index of {pair!r} is not a whole number from 0 on"
        if as_number(value) is None:
            return f"the value of {pair!r} is not a finite number"
    return "this is not a row of the form: label index:value index:value ..."
