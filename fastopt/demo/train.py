"""The training loop: epochs over shuffled batches, each followed by a look at the held-out rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

import fastopt as fo
from fastopt.metrics import log_loss, roc_auc_score

from .features import Examples
from .model import WideAndDeep


class Progress(Protocol):
    """Told after every batch."""

    def update(self, done: int, loss: float) -> None:
        """`done` examples of this epoch are trained on; `loss` is the last batch's."""


@dataclass
class Work:
    """The sum of what an optimizer's `apply_gradients` reported, call by call."""

    variables: dict[str, None] = field(default_factory=dict)  # an ordered set of names
    steps: int = 0
    sparse_rows: int = 0
    dense_parameters: int = 0

    def add(self, done: fo.Operation) -> None:
        """Count one call."""
        self.variables.update(dict.fromkeys(variable.name for variable in done.variables))
        self.steps += 1
        self.sparse_rows += done.sparse_rows
        self.dense_parameters += done.dense_parameters


@dataclass(frozen=True)
class Epoch:
    """What an epoch came to.

    `auc` is None when the held-out rows have one label only.
    """

    number: int
    seconds: float
    examples_per_second: float
    train_loss: float
    test_log_loss: float
    test_auc: float | None


def train(
    model: WideAndDeep,
    training: Examples,
    held_out: Examples,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
    progress: Progress,
    work: dict[str, Work],
) -> Iterator[Epoch]:
    """Train, and yield after each epoch.

    Parameters
    ----------
    model : WideAndDeep
        The model; trained in place.
    training, held_out : Examples
        What to train on, and what to measure on.
    epochs, batch_size : int
        How often to go through `training`, and by how many examples at a time.
    seed : int
        Seed of the order of the examples.
    progress : Progress
        Told after every batch.
    work : dict of str to Work
        By optimizer name; what the optimizers did is added here.
    """
    rng = np.random.default_rng(seed)
    for number in range(1, epochs + 1):
        order = rng.permutation(len(training))
        loss_sum = 0.0
        start = time.perf_counter()
        for begin in range(0, len(order), batch_size):
            batch = training.take(order[begin : begin + batch_size])
            loss, *operations = model.train_step(batch)
            for done in operations:
                work.setdefault(done.name, Work()).add(done)
            loss_sum += loss * len(batch)
            progress.update(begin + len(batch), loss)
        seconds = time.perf_counter() - start
        probability = model.predict(held_out)
        both = 0 < held_out.label.sum() < len(held_out)
        yield Epoch(
            number,
            seconds,
            len(training) / seconds,
            loss_sum / len(training),
            log_loss(held_out.label, probability),
            roc_auc_score(held_out.label, probability) if both else None,
        )
