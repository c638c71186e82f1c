"""What the demo's tests share: a data file made on the spot, and Python in another process."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import fastopt as fo

# The same fastopt that this process imports, installed or not, whatever the current directory is.
PYTHON = [sys.executable, "-P"]
FASTOPT = [*PYTHON, "-m", "fastopt"]


def environment(**extra: str) -> dict[str, str]:
    """Return the environment in which PYTHON imports the fastopt under test."""
    return os.environ | {"PYTHONPATH": str(Path(fo.__file__).parents[1])} | extra


def click_log(path: Path, rows: int = 300) -> Path:
    """Write a file in the column layout of the Criteo logs: numbers and hashes, both with gaps.

    The label follows C1 and I2, so that there is something to learn.
    """
    rng = random.Random(0)
    header = ["label", *(f"I{k}" for k in range(1, 14)), *(f"C{k}" for k in range(1, 27))]
    lines = [",".join(header)]
    for _ in range(rows):
        numbers = [
            "" if rng.random() < 0.3 else str(round(rng.lognormvariate(2, 2)) - 2)
            for _ in range(13)
        ]
        hashes = [
            "" if rng.random() < 0.1 else f"{rng.randrange(20) * 2654435761 % 2**32:08x}"
            for _ in range(26)
        ]
        hashes[0] = rng.choice(["05db9164", "68fd1e64"])
        odds = (hashes[0] == "68fd1e64") * 0.6 + (numbers[1] == "") * 0.2 + 0.1
        lines.append(",".join([str(int(rng.random() < odds)), *numbers, *hashes]))
    path.write_text("\n".join(lines) + "\n")
    return path
