"""HIPS autograd with NumPy: gradients of the rows that were looked up, updates by hand."""

from __future__ import annotations

import itertools
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import grad

from bench import models
from bench.contestant import Builders, Contestant
from bench.peers.numpy_ import summed
from bench.workloads import Clicks, Factorisation, Workload

f32 = np.float32


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case Clicks():
            return {"autograd + NumPy": lambda: _clicks(work)}
        case Factorisation():
            return {"autograd + NumPy": lambda: _factorisation(work)}
    return {}


def _update(p: np.ndarray, a: np.ndarray, g: np.ndarray, ids: np.ndarray | None = None) -> None:
    """Adagrad, on all of an array or on the rows of a batch."""
    if ids is None:
        a += g * g
        p -= f32(models.LEARNING_RATE) * g / np.sqrt(a)
        return
    rows, total = summed(ids, g)
    new = a[rows] + total * total
    a[rows] = new
    p[rows] -= f32(models.LEARNING_RATE) * total / np.sqrt(new)


def _accumulator(p: np.ndarray) -> np.ndarray:
    return np.full_like(p, models.INITIAL_ACCUMULATOR)


def _clicks(work: Clicks) -> Contestant:
    task = models.ClickTask(work)
    tables = task.tables()
    weights = [array for pair in task.layers() for array in pair]
    accumulators = [_accumulator(tables), *map(_accumulator, weights)]

    def logits(rows: Any, weights: list[Any], dense: np.ndarray) -> Any:
        x = anp.concatenate([anp.reshape(rows, (work.batch, -1)), dense], 1)
        for w, b in zip(weights[0:-2:2], weights[1:-2:2], strict=True):
            x = anp.maximum(anp.dot(x, w) + b, 0)
        return anp.dot(x, weights[-2]) + weights[-1]

    def loss_of(parameters: Any, dense: np.ndarray, labels: np.ndarray) -> Any:
        z = logits(parameters[0], parameters[1], dense)
        return anp.mean(anp.logaddexp(0, z) - labels * z)

    gradient = grad(loss_of)
    batches = [task.batch(k) for k in range(models.BATCHES + 1)]
    batches = [((ids + task.offsets).reshape(-1), x, y) for ids, x, y in batches]
    turn = itertools.cycle(batches[:-1])

    def step() -> None:
        ids, dense, labels = next(turn)
        of_rows, of_weights = gradient((tables[ids], weights), dense, labels)
        _update(tables, accumulators[0], of_rows, ids)
        for w, a, g in zip(weights, accumulators[1:], of_weights, strict=True):
            _update(w, a, g)

    def loss() -> float:
        ids, dense, labels = batches[-1]
        return models.log_loss(labels, logits(tables[ids], weights, dense))

    return Contestant(step, loss=loss, steps_to_loss=models.BATCHES)


def _factorisation(work: Factorisation) -> Contestant:
    task = models.RatingTask(work)
    users, items = task.factors()
    slots = _accumulator(users), _accumulator(items)

    def loss_of(rows: Any, ratings: np.ndarray) -> Any:
        return anp.mean((anp.sum(rows[0] * rows[1], axis=1) - ratings) ** 2)

    gradient = grad(loss_of)
    turn = itertools.cycle([task.batch(k) for k in range(models.BATCHES)])

    def step() -> None:
        u, i, ratings = next(turn)
        of_users, of_items = gradient((users[u], items[i]), ratings)
        _update(users, slots[0], of_users, u)
        _update(items, slots[1], of_items, i)

    return Contestant(step, loss=lambda: task.loss(users, items), steps_to_loss=models.BATCHES)
