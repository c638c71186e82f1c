"""The same bits for every number of threads and instruction-set level."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels import _dispatch
from tests.deferred.oracles import walk

ROOT = Path(__file__).parents[2]


def digest(n_threads: int) -> str:
    """Train tables of several widths and dtypes; return a digest of all that came of it."""
    found = hashlib.sha256()
    before = fo.get_num_threads()
    fo.set_num_threads(n_threads)
    try:
        for width, dtype in ((1, np.float32), (5, np.float64), (16, np.float32), (64, np.float64)):
            table = fo.Variable(np.ones((3000, width), dtype))
            optimizer = fo.AdamOptimizer(0.01, 0.9, 0.99)
            draw = walk(3000, width, listed=2500)
            for t in range(12):
                (values, ids), _ = draw()
                slices = fo.IndexedSlices(values.astype(dtype), ids)
                optimizer.apply_gradients([(slices, table)])
                some = np.arange(t, 3000, 3)
                found.update(table._read_rows(some).tobytes())
                if t % 3 == 0:
                    found.update(table._read_at(some)[some].tobytes())
            found.update(table.numpy().tobytes())
            for name in ("m", "v"):
                slot = optimizer.get_slot(table, name)
                assert slot is not None
                found.update(slot.numpy().tobytes())
    finally:
        fo.set_num_threads(before)
    return found.hexdigest()


def test_for_every_number_of_threads() -> None:
    assert digest(1) == digest(2) == digest(8)


@pytest.mark.parametrize("level", _dispatch.supported_levels())
def test_for_every_instruction_set(level: str, tmp_path: Path) -> None:
    # The checkout comes last on the path: an installed package is what is tested.
    program = f"import sys; sys.path.append({str(ROOT)!r});"
    program += "from tests.deferred.test_same_bits import digest; print(digest(2))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FASTOPT_SIMD": level},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest(1)


@pytest.mark.parametrize("make", [fo.AdamOptimizer, fo.AdamaxOptimizer])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [8, 16, 20, 64, 300])
def test_of_rows_that_were_read_right_before(make: type, dtype: type, width: int) -> None:
    """A step makes up for what rows have missed as a look-up does."""
    read, unread = (fo.Variable(np.ones((300, width), dtype)) for _ in range(2))
    optimizer = make(0.01, 0.9, 0.99)
    draw = walk(300, width, listed=60)
    for _ in range(40):
        (values, ids), _ = draw()
        read._read_at(ids)
        often = np.concatenate([ids, np.repeat(ids[:1], 200)])  # a run of look-ups of one row
        slices = fo.IndexedSlices(np.resize(values.astype(dtype), (len(often), width)), often)
        optimizer.apply_gradients([(slices, read), (slices, unread)])
    np.testing.assert_array_equal(read.numpy(), unread.numpy())
    for name in ("m", "v"):
        first, second = (optimizer.get_slot(table, name) for table in (read, unread))
        assert first is not None and second is not None
        np.testing.assert_array_equal(first.numpy(), second.numpy())
