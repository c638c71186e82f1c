"""Save again and again, be killed at any instant, look at what is left: run by `test_files`.

A program and not a test: it forks, which a process with all of pytest in it does slowly.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import fastopt as fo

AT_LEAST, AT_MOST = 40, 1000  # times to kill
N = 50_000


def program() -> tuple[fo.Variable, fo.Variable, fo.Optimizer]:
    """Return variables and an optimizer whose slots all have the same number in all places."""
    table = fo.Variable(np.zeros(N, np.float32), name="table")
    last = fo.Variable(np.zeros(3, np.int8), name="last", trainable=False)
    optimizer = fo.MomentumOptimizer(1.0, 0.5)
    optimizer.apply_gradients([(np.zeros(N, np.float32), table)])
    return table, last, optimizer


def save_for_ever(path: Path, first: int, started: int) -> None:
    """Save states that are told apart by their step; say when the first save begins."""
    table, last, optimizer = program()
    slot = optimizer.get_slot(table, "momentum")
    assert slot is not None
    step = first
    while True:
        step += 1
        table.assign(np.full(N, step, np.float32))
        slot.assign(np.full(N, -step, np.float32))
        last.assign(np.full(3, step % 100, np.int8))
        if step == first + 1:
            os.write(started, b".")
        fo.checkpoint.save(path, optimizer, step=step)


def main(directory: Path) -> None:
    """Print how many different checkpoints were found, and how many saves were cut."""
    path = directory / "model.safetensors"
    rng = random.Random(5)
    seen: set[int] = set()
    cut = step = kills = 0
    patience = 0.01  # adapts itself to about as long as a save takes
    with fo.Graph().as_default():
        table, last, optimizer = program()
        slot = optimizer.get_slot(table, "momentum")
        assert slot is not None
        fo.checkpoint.save(path, optimizer, step=0)
        while kills < AT_LEAST or (min(len(seen), cut) < 10 and kills < AT_MOST):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    with fo.Graph().as_default():
                        save_for_ever(path, step, writing)
                finally:
                    os._exit(1)
            os.close(writing)
            os.read(reading, 1)
            os.close(reading)
            time.sleep(rng.uniform(0.0, patience))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            assert os.WIFSIGNALED(status), "the child ended by itself"
            kills += 1
            restored = fo.checkpoint.restore(path, optimizer)
            assert restored.step is not None and restored.step >= step
            patience *= 1.2 if restored.step == step else 0.9
            step = restored.step
            assert (table.numpy() == step).all(), step
            assert (slot.numpy() == -step).all(), step
            assert (last.numpy() == step % 100).all(), step
            seen.add(step)
            unfinished = [entry for entry in os.listdir(directory) if entry != path.name]
            assert all(name.startswith(".model.safetensors.") for name in unfinished), unfinished
            cut = len(unfinished)
    print(len(seen), cut)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
