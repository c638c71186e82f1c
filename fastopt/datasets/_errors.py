"""What is said when a data file cannot be read as it stands."""

from __future__ import annotations

__all__ = ["DataError"]


class DataError(ValueError):
    """A data file, or one line of it, is not what it should be.

    Parameters
    ----------
    path : str
        The file, as the caller named it.
    problem : str
        What is wrong.
    line : int, optional
        The line the problem stands on, counted from 1.

    Examples
    --------
    >>> from fastopt.datasets import DataError
    >>> print(DataError("clicks.csv", "4 fields where the header has 5", line=12))
    clicks.csv, line 12: 4 fields where the header has 5
    """

    def __init__(self, path: str, problem: str, line: int | None = None) -> None:
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")
        self.path = path
        self.problem = problem
        self.line = line

    def __reduce__(self) -> tuple[type[DataError], tuple[str, str, int | None]]:
        return type(self), (self.path, self.problem, self.line)
