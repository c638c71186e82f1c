"""A fork while another thread is in the middle of a step or a look-up."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import fastopt as fo


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_finds_its_tables_unlocked() -> None:
    """The thread that held the mutex of a ledger is not there to give it up."""
    table = fo.Variable(np.zeros((20_000, 64), np.float32), name="table")
    optimizer = fo.AdamOptimizer(0.01)
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, 20_000, size=20_000) for _ in range(4)]
    values = np.ones((20_000, 64), np.float32)
    stop = threading.Event()

    def work() -> None:
        k = 0
        while not stop.is_set():
            k += 1
            optimizer.apply_gradients([(fo.IndexedSlices(values, ids[k % 4]), table)])
            table._read_rows(ids[(k + 1) % 4])

    before = fo.get_num_threads()
    fo.set_num_threads(1)  # a fork waits for what the pool is doing
    worker = threading.Thread(target=work)
    worker.start()
    try:
        for wait in rng.uniform(0, 0.01, size=20):
            time.sleep(wait)  # not the moment at which the worker gives up the interpreter
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # instead of waiting for ever
                table._read_rows(ids[0][:100])
                os._exit(0 if np.isfinite(table.numpy()).all() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        worker.join()
        fo.set_num_threads(before)
