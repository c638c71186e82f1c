"""The data set that comes with the package."""

from __future__ import annotations

from pathlib import Path

from ._csv import read_csv
from ._table import Table

__all__ = ["load_census"]

_NUMERIC = (
    "age",
    "fnlwgt",
    "educational-num",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
)


def load_census() -> Table:
    """Return the Census Income data.

    Who earned more than 50,000 dollars in 1994? 48,842 rows; 6 numeric and 8 categorical columns,
    some with gaps. Source: Becker, B. and Kohavi, R. (1996), *Adult*, UCI Machine Learning
    Repository, https://doi.org/10.24432/C5XW20, under CC BY 4.0.

    Returns
    -------
    Table
        The label is ``income``; 1 means more than 50,000 dollars.

    Examples
    --------
    >>> from fastopt.datasets import load_census
    >>> census = load_census()
    >>> len(census), census.label.meaning
    (48842, ('<=50K', '>50K'))
    >>> census["workclass"].categories[:3]
    ('Private', 'Local-gov', 'Self-emp-not-inc')
    """
    path = Path(__file__).with_name("adult.csv.gz")
    return read_csv(path, label="income", numeric=_NUMERIC)
