"""A training that can be stopped after any step: run in one process, gone on with in another.

A program and not a test: what is resumed must not find anything that the first process has made.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fastopt as fo
from tests.optimizer_db import RECORDS, Record

STOP, END = 5, 11
ROWS = 7


def variants() -> Iterator[tuple[str, Record, dict[str, Any]]]:
    """Yield every optimizer of the registry with its variants, and one with a schedule."""
    for record in RECORDS:
        for name, kwargs in record.variants.items():
            yield f"{record.id}-{name}", record, kwargs
        if "learning_rate" in record.cls._constraints:
            schedule = fo.schedules.ExponentialDecay(0.1, decay_steps=3, decay_rate=0.5)
            yield f"{record.id}-schedule", record, {"learning_rate": schedule}


class Training:
    """A table of float32 with sparse gradients, a vector of float64, averages and a loss scale."""

    def __init__(self, record: Record, kwargs: dict[str, Any]) -> None:
        rng = np.random.default_rng(3)
        self.table = fo.Variable(rng.normal(size=(ROWS, 3)).astype(np.float32), name="table")
        self.vector = fo.Variable(rng.normal(size=4), name="vector")
        self.step = fo.create_global_step()
        scale = fo.loss_scale.DynamicLossScale(4.0, increment_period=3)
        if "global_step" in record.cls._constraints:
            kwargs = {**kwargs, "global_step": self.step}
        self.optimizer = fo.MixedPrecisionLossScaleOptimizer(record.make(**kwargs), scale)
        self.average = fo.ExponentialMovingAverage(0.9, num_updates=self.step)
        self.state = {"optimizers": self.optimizer, "averages": self.average}

    def train(self, until: int) -> None:
        """Train until the global step is this. One step finds gradients that are not finite."""
        while (step := int(self.step.value)) < until:
            rng = np.random.default_rng([7, step])
            rows = rng.integers(0, ROWS, 3)
            slices = fo.IndexedSlices(rng.normal(size=(3, 3)).astype(np.float32), rows)
            dense = rng.normal(size=4)
            if step == 2 and self.optimizer.loss_scale.skipped_steps == 0:
                dense[0] = np.inf
            pairs = [(slices, self.table), (dense, self.vector)]
            if step % 3 == 1:
                pairs[0] = (rng.normal(size=(ROWS, 3)).astype(np.float32), self.table)
            self.optimizer.apply_gradients(pairs, global_step=self.step)
            self.average.apply([self.table, self.vector])


def main(directory: Path) -> None:
    """Go on with every training whose checkpoint is in the directory."""
    for name, record, kwargs in variants():
        with fo.Graph().as_default():
            training = Training(record, kwargs)
            fo.checkpoint.restore(directory / f"{name}.stop", **training.state)
            training.train(END)
            fo.checkpoint.save(directory / f"{name}.resumed", **training.state)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
