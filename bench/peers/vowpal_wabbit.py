"""Vowpal Wabbit: FTRL over a file, in passes over its cache, without Python in the loop."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from vowpalwabbit.pyvw import Workspace

from bench import models
from bench.contestant import Builders, Contestant
from bench.workloads import LinearFtrl, Workload

OPTIONS = "--ftrl --loss_function logistic -b 22 --quiet --noconstant --holdout_off"
PASSES = 5


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case LinearFtrl():
            return {"VW --ftrl, cached passes": lambda: _passes(work)}
    return {}


def _text(task: models.LinearTask, k: int) -> list[str]:
    ids, labels = task.batch(k)
    return [
        f"{1 if label else -1} |f {' '.join(map(str, row))}"
        for row, label in zip(ids, labels, strict=True)
    ]


def _loss(task: models.LinearTask, model: Workspace) -> float:
    _, labels = task.batch(models.BATCHES)
    logits = [model.predict(line[line.index("|") :]) for line in _text(task, models.BATCHES)]
    return models.log_loss(labels, np.array(logits))


def _passes(work: LinearFtrl) -> Contestant:
    """One step is one run over the whole file: what is told is examples a second."""
    task = models.LinearTask(work)
    directory = tempfile.TemporaryDirectory()
    text, cache = Path(directory.name, "x.txt"), Path(directory.name, "x.cache")
    lines = [line for k in range(models.BATCHES) for line in _text(task, k)]
    text.write_text("\n".join(lines) + "\n")

    def step() -> None:
        Workspace(f"{OPTIONS} -d {text} --cache_file {cache} --passes {PASSES}").finish()

    def loss() -> float:
        model = Workspace(f"{OPTIONS} -d {text}")  # one pass, as the others
        found = _loss(task, model)
        model.finish()
        return found

    def step_in(directory: tempfile.TemporaryDirectory[str] = directory) -> None:
        step()  # the directory lives as long as this function

    return Contestant(step_in, loss=loss, steps_to_loss=1, examples=len(lines) * PASSES)
