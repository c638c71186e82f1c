"""scikit-learn's SGDClassifier: plain gradient descent after every example, in float64."""

from __future__ import annotations

import itertools

import numpy as np
import scipy.sparse
from sklearn.linear_model import SGDClassifier

from bench import models
from bench.contestant import Builders, Contestant
from bench.workloads import LinearFtrl, Workload


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case LinearFtrl():
            return {"SGDClassifier.partial_fit": lambda: _linear(work)}
    return {}


def _linear(work: LinearFtrl) -> Contestant:
    task = models.LinearTask(work)
    indptr = np.arange(work.batch + 1) * work.per_row
    ones = np.ones(work.batch * work.per_row)
    batches = []
    for k in range(models.BATCHES):
        ids, labels = task.batch(k)
        shape = (work.batch, work.features)
        batches.append((scipy.sparse.csr_matrix((ones, ids.reshape(-1), indptr), shape), labels))
    model = SGDClassifier(
        loss="log_loss", alpha=1e-6, learning_rate="constant", eta0=0.05, fit_intercept=False
    )
    turn = itertools.cycle(batches)
    return Contestant(
        lambda: model.partial_fit(*next(turn), classes=[0.0, 1.0]),
        loss=lambda: task.loss(model.coef_),
        steps_to_loss=models.BATCHES,
    )
