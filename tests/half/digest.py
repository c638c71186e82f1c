"""Print a digest of trained 16-bit variables: run once a level, and compared.

A program and not a test: the instruction-set level is chosen when the kernels are imported.
"""

from __future__ import annotations

import hashlib

import numpy as np

import fastopt as fo
from fastopt._kernels import _half
from tests.half.support import HALVES, every, float32_near
from tests.optimizer_db import RECORDS


def digests() -> dict[str, str]:
    """Return a digest of all conversions, and for every rule one of weights, masters and slots."""
    found = {}
    for half in HALVES:
        wide, narrow = _half.widen(every(half)), _half.narrow(float32_near(half), half)
        found[half.name] = hashlib.sha256(wide.tobytes() + narrow.tobytes()).hexdigest()
    rng = np.random.default_rng(12)
    dense = rng.normal(size=(2, 70_001)).astype(np.float32)
    ids = rng.integers(0, 900, size=(2, 4000))
    rows = {width: rng.normal(size=(2, 4000, width)).astype(np.float32) for width in (3, 40)}
    for record in RECORDS:
        digest = hashlib.sha256()
        for half in HALVES:
            optimizer = record.make()
            w = fo.Variable(np.full(70_001, 0.3, half))
            tables = {width: fo.Variable(np.full((900, width), 0.3, half)) for width in rows}
            for step in range(2):
                slices = [
                    (fo.IndexedSlices(rows[width][step], ids[step]), table)
                    for width, table in tables.items()
                ]
                optimizer.apply_gradients([(dense[step], w), *slices])
            for var in (w, *tables.values(), *optimizer.variables()):
                digest.update(var.numpy().tobytes())
        found[record.id] = digest.hexdigest()
    return found


if __name__ == "__main__":
    for name, value in digests().items():
        print(name, value)
