"""Turns the values of a label column into 0 and 1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ._errors import DataError
from ._table import Label

# What counts as a gap in any column.
_GAP_WORDS = ("", "?", "na", "NaN", "n/a", "nan", "null", "none")
GAPS = frozenset(form for word in _GAP_WORDS for form in (word, word.upper(), word.title()))


def as_number(text: str) -> float | None:
    """Return the finite number that `text` spells, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    # float() reads 1_000 as 1000, which no program that writes data files means.
    return number if np.isfinite(number) and "_" not in text else None


class LabelReader:
    """Collects labels chunk by chunk; 1 and 1.0 are one label, words differ by spelling."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._codes: dict[str, int] = {}
        self._classes: list[str | float] = []
        self._chunks: list[np.ndarray] = []

    def add(self, texts: Sequence[str], lines: Sequence[int]) -> None:
        """Take the labels of the rows that begin on `lines`."""
        try:
            codes = [self._codes[text] for text in texts]
        except KeyError:
            codes = [self._code(text, line) for text, line in zip(texts, lines, strict=True)]
        self._chunks.append(np.array(codes, dtype=np.int8))

    def _code(self, text: str, line: int) -> int:
        if text in self._codes:
            return self._codes[text]
        if text in GAPS:
            raise DataError(self._path, f"the label ({self._name!r}) is missing", line)
        number = as_number(text)
        value = text if number is None else number
        if value not in self._classes:
            if len(self._classes) == 2:
                first, second = self._spellings()
                raise DataError(
                    self._path,
                    f"{text!r} is a third value of the label ({self._name!r}), after {first!r} and"
                    f" {second!r}; a label has two",
                    line,
                )
            self._classes.append(value)
        return self._codes.setdefault(text, self._classes.index(value))

    def _spellings(self) -> list[str]:
        """How the file first wrote each class."""
        first: dict[int, str] = {}
        for text, code in self._codes.items():
            first.setdefault(code, text)
        return [first[code] for code in range(len(self._classes))]

    def finish(self) -> Label:
        """Return the label: the larger number, or the word later in the alphabet, is 1."""
        spellings = self._spellings()
        if len(spellings) < 2:
            found = f"every row has {spellings[0]!r}" if spellings else "there are no rows"
            raise DataError(self._path, f"the label ({self._name!r}) needs two values; {found}")
        codes = np.concatenate(self._chunks)
        one, two = self._classes
        numbers = isinstance(one, float) and isinstance(two, float)
        descending = one > two if numbers else str(spellings[0]) > str(spellings[1])  # type: ignore[operator]
        if descending:
            codes = 1 - codes
            spellings.reverse()
        return Label(self._name, codes.astype(np.float32), (spellings[0], spellings[1]))


def two_values(texts: Iterable[str]) -> bool:
    """Whether a column could be a label: two distinct values and no gap."""
    distinct = set(texts)
    return len(distinct) == 2 and not distinct & GAPS
