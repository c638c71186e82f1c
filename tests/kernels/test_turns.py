"""Kernels that are called by several Python threads at once, and come back in any order."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastopt._kernels._dots import pair_dots
from fastopt._kernels._transpose import sum_by_row


def work(k: int) -> tuple[bytes, ...]:
    rng = np.random.default_rng(k)
    first, second = (rng.normal(size=(500, 40)).astype(np.float32) for _ in range(2))
    ids, others = rng.integers(0, 500, 2_000), rng.integers(0, 500, 2_000)
    found = pair_dots(first, ids, second, others)
    assert found is not None
    out, flat, other_flat, starts = found
    # None: another thread has the map of rows just now.
    while (summed := sum_by_row(first, starts, other_flat, out, 500, flat)) is None:
        pass
    return tuple(array.tobytes() for array in (out, *summed))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads(threads: int) -> None:
    right = [work(k) for k in range(20)]
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(3):
            assert list(pool.map(work, range(20))) == right


def test_a_thread_that_stays_in_python_holds_nobody_up() -> None:
    """Whoever came back last may never call a kernel again, or be gone."""
    right = [work(k) for k in range(5)]
    done = threading.Event()

    def call_once_and_stay() -> None:
        work(0)
        while not done.is_set():
            time.sleep(0.001)

    stays = threading.Thread(target=call_once_and_stay)
    gone = threading.Thread(target=work, args=(1,))
    stays.start()
    gone.start()
    gone.join()
    try:
        assert [work(k) for k in range(5)] == right
    finally:
        done.set()
        stays.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_process_whose_threads_are_in_kernels() -> None:
    program = """
import os, threading
from tests.kernels.test_turns import work

right, ended = work(3), threading.Event()

def others():
    while not ended.is_set():
        work(1)

threads = [threading.Thread(target=others, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        os._exit(0 if work(3) == right else 1)
    assert os.waitpid(child, 0)[1] == 0
ended.set()
for thread in threads:
    thread.join()
"""
    root = str(Path(__file__).resolve().parents[2])
    start = f"import sys; sys.path.append({root!r})\n"
    ran: Any = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", start + program],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
