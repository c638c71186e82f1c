"""How good a binary classifier is."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["log_loss", "roc_auc_score"]


def roc_auc_score(y_true: ArrayLike, y_score: ArrayLike) -> float:
    """Return the area under the receiver operating characteristic.

    The share of pairs of a positive and a negative row in which the positive one has the higher
    score; a pair with equal scores counts half. It is computed from ranks (the Mann-Whitney U
    statistic), so it is exact and needs no thresholds.

    Parameters
    ----------
    y_true : array_like, shape (n,)
        0 or 1; both must occur.
    y_score : array_like, shape (n,)
        The higher, the likelier 1. Any real numbers but NaN.

    Returns
    -------
    float
        Between 0 and 1; 0.5 says nothing.

    Raises
    ------
    ValueError
        Shapes differ, a label is neither 0 nor 1, only one of them occurs, or a score is NaN.

    Examples
    --------
    >>> from fastopt.metrics import roc_auc_score
    >>> roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    truth, score = _checked(y_true, y_score, "y_score")
    order = np.argsort(score, kind="stable")
    score, truth = score[order], truth[order]
    starts = np.flatnonzero(np.r_[True, score[1:] != score[:-1]])
    positives = np.add.reduceat(truth, starts)
    negatives = np.diff(np.r_[starts, len(score)]) - positives
    below = np.cumsum(negatives) - negatives
    total_positive = int(positives.sum())
    total_negative = len(truth) - total_positive
    if not total_positive or not total_negative:
        raise ValueError(
            f"y_true has only the label {int(truth[0])}; the area under the curve needs both"
        )
    # Twice the U statistic is a whole number: no rounding before the last division.
    twice_u = int(np.sum(positives * (2 * below + negatives)))
    return twice_u / (2 * total_positive * total_negative)


def log_loss(y_true: ArrayLike, y_prob: ArrayLike) -> float:
    """Return the mean negative log-likelihood of the labels, in nats.

    ``-mean(y * log(p) + (1 - y) * log(1 - p))``, with `y_prob` clipped to ``[eps, 1 - eps]``, where
    ``eps`` is the machine epsilon of its dtype, as scikit-learn does.

    Parameters
    ----------
    y_true : array_like, shape (n,)
        0 or 1.
    y_prob : array_like, shape (n,)
        Probabilities of 1.

    Returns
    -------
    float
        0 at best; log(2) for a constant 0.5.

    Raises
    ------
    ValueError
        Shapes differ, a label is neither 0 nor 1, or a probability is NaN or outside [0, 1].

    Examples
    --------
    >>> from fastopt.metrics import log_loss
    >>> round(log_loss([0, 1], [0.1, 0.8]), 6)
    0.164252
    """
    truth, given = _checked(y_true, y_prob, "y_prob")
    if given.min() < 0 or given.max() > 1:
        raise ValueError(f"y_prob must lie in [0, 1]; it goes from {given.min()} to {given.max()}")
    eps = np.finfo(given.dtype).eps
    prob = np.clip(given.astype(np.float64), eps, 1 - eps)
    return float(-np.mean(np.where(truth == 1, np.log(prob), np.log1p(-prob))))


def _checked(
    y_true: ArrayLike, given: ArrayLike, name: str
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    truth = np.asarray(y_true)
    score = np.asarray(given)
    if score.dtype.kind != "f":
        score = score.astype(np.float64)
    if truth.ndim != 1 or truth.shape != score.shape:
        raise ValueError(
            f"y_true and {name} must be vectors of one length;"
            f" their shapes are {truth.shape} and {score.shape}"
        )
    if not len(truth):
        raise ValueError(f"y_true and {name} are empty")
    if not np.isin(truth, (0, 1)).all():
        strange = truth[~np.isin(truth, (0, 1))][0]
        raise ValueError(f"y_true must hold 0 and 1 only; it holds {strange}")
    if np.isnan(score).any():
        raise ValueError(f"{name} has NaN at position {int(np.flatnonzero(np.isnan(score))[0])}")
    return truth.astype(np.int64), score
