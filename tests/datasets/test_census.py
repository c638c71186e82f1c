"""The data set that comes with the package."""

from __future__ import annotations

from importlib import resources

import numpy as np

from fastopt.datasets import NumericColumn, load_census


def test_columns() -> None:
    census = load_census()
    assert len(census) == 48_842
    numeric = [c.name for c in census.columns if isinstance(c, NumericColumn)]
    assert numeric == [
        "age",
        "fnlwgt",
        "educational-num",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
    ]
    assert len(census.columns) == 14
    assert census.label.name == "income"
    assert census.label.values.sum() == 11_687
    assert np.sum(census["workclass"].codes == -1) == 2_799  # gaps, counted with grep
    assert census["age"].values.min() == 17


def test_size_and_attribution() -> None:
    files = resources.files("fastopt.datasets")
    assert len((files / "adult.csv.gz").read_bytes()) < 700_000
    licence = (files / "adult.LICENSE.md").read_text()
    for word in ("CC BY 4.0", "Becker", "Kohavi", "1996", "UCI Machine Learning Repository"):
        assert word in licence
