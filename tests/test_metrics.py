"""The metrics, against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastopt.metrics import log_loss, roc_auc_score

_rows = st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=40).filter(
    lambda rows: len({truth for truth, _ in rows}) == 2
)


@given(_rows)
def test_auc_counts_pairs(rows: list[tuple[bool, int]]) -> None:
    positive = [score for truth, score in rows if truth]
    negative = [score for truth, score in rows if not truth]
    won = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
    auc = roc_auc_score([t for t, _ in rows], [s for _, s in rows])
    # both are one correctly rounded division of a multiple of 1/2
    assert auc == won / (len(positive) * len(negative))


def test_auc_extremes() -> None:
    assert roc_auc_score([0, 0, 1], [1, 2, 3]) == 1
    assert roc_auc_score([1, 1, 0], [1, 2, 3]) == 0
    assert roc_auc_score([0, 1], [-np.inf, np.inf]) == 1
    assert roc_auc_score([0, 1, 0, 1], np.full(4, 0.3, np.float32)) == 0.5


def test_log_loss() -> None:
    expected = -(math.log(0.9) + math.log(0.8) + math.log(0.3)) / 3
    # a mean of three terms: a few roundings
    assert log_loss([0, 1, 1], [0.1, 0.8, 0.3]) == pytest.approx(expected, rel=1e-15)
    assert log_loss([0, 1], [0.5, 0.5]) == pytest.approx(math.log(2), rel=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_loss_of_certainty_is_finite(dtype: type) -> None:
    eps = np.finfo(dtype).eps
    wrong = log_loss([1, 0], np.array([0, 1], dtype))
    assert wrong == pytest.approx(-math.log(eps), rel=1e-6)  # log1p(-(1 - eps)) is log(eps)
    assert 0 < log_loss([0, 1], np.array([0, 1], dtype)) < 2 * eps


@pytest.mark.parametrize("metric", [roc_auc_score, log_loss])
@pytest.mark.parametrize(
    ("truth", "given", "message"),
    [
        ([0, 1], [0.5], "shapes are"),
        ([[0, 1]], [[0.5, 0.5]], "shapes are"),
        ([], [], "empty"),
        ([0, 2], [0.5, 0.5], "0 and 1 only; it holds 2"),
        ([0, -1], [0.5, 0.5], "0 and 1 only; it holds -1"),
        ([0, 1], [0.5, np.nan], "NaN at position 1"),
    ],
)
def test_bad_input(metric, truth, given, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric(truth, given)


def test_auc_needs_both_labels() -> None:
    with pytest.raises(ValueError, match="only the label 1"):
        roc_auc_score([1, 1], [0.5, 0.6])


@pytest.mark.parametrize("bad", [-0.1, 1.5])
def test_log_loss_wants_probabilities(bad: float) -> None:
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        log_loss([0, 1], [0.5, bad])
