"""Work on a batch, block of rows by block of rows, on several threads.

Products belong to NumPy and its BLAS, so what shares them out are threads of Python, which leave
the interpreter to each other while a product runs. That is for a BLAS of one thread, as with
``OPENBLAS_NUM_THREADS=1``; one with threads of its own gets the whole product. Blocks follow from
sizes alone: results are the same bits for every number of threads that the kernels use.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from fastopt._kernels._pool import get_num_threads

__all__ = ["blocks", "run"]

# Where BLAS libraries look for their number of threads when they are loaded; first come, first
# served.
_BLAS_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OMP_NUM_THREADS",
)


def blas_has_one_thread() -> bool:
    """Say whether the environment limits the BLAS to the thread that calls it."""
    found = [value for name in _BLAS_VARIABLES if (value := os.environ.get(name))]
    return found[:1] == ["1"]


_ours = blas_has_one_thread()

# Multiplications. Below the first a second thread costs more than it gives; blocks of less than the
# second lose much of a BLAS's speed, which packs the other matrix anew for each.
_ALONE = 1 << 24
_PAIR_OF_BLOCKS = 1 << 26
_ROWS = 64  # blocks begin at multiples of this, as BLAS kernels like it

_executor: ThreadPoolExecutor | None = None
_size = 0


def blocks(n: int, inner: int, width: int) -> list[slice]:
    """Cut the rows of a product of (n, inner) and (inner, width) matrices.

    Parameters
    ----------
    n, inner, width : int
        The sizes.

    Returns
    -------
    list of slice
        At least one. None but the last has fewer rows than `inner`, so that a matrix (inner, width)
        for each block takes no more memory than the product.
    """
    work = n * inner * width
    if not _ours or work < _ALONE:
        return [slice(0, n)]
    number = 2 * -(-work // _PAIR_OF_BLOCKS)
    rows = max(-(-n // number), inner)
    rows = -(-rows // _ROWS) * _ROWS
    return [slice(lo, min(lo + rows, n)) for lo in range(0, n, rows)]


def run(task: Callable[[int, slice], Any], parts: Sequence[slice]) -> None:
    """Call ``task(i, parts[i])`` for every i, on as many threads as the kernels may use.

    The caller is one of them, and waits for no thread that has not begun. The first error is raised
    when all have ended.

    Parameters
    ----------
    task : callable
        Of a number and a slice. Floating-point errors are treated as in the caller's thread.
    parts : sequence of slice
        What there is to do.
    """
    helpers = min(get_num_threads(), len(parts)) - 1
    if helpers < 1:
        for i, part in enumerate(parts):
            task(i, part)
        return
    left = deque(enumerate(parts))

    def drain() -> None:
        while left:
            try:
                i, part = left.popleft()
            except IndexError:  # somebody else was faster
                return
            task(i, part)

    settings: dict[str, Any] = {**np.geterr(), "call": np.geterrcall()}

    def help_out() -> None:
        with np.errstate(**settings):
            drain()

    futures = _submit(help_out, helpers)
    try:
        drain()
    finally:
        left.clear()
        waited = [future for future in futures if not future.cancel()]
        errors = [error for future in waited if (error := future.exception()) is not None]
    if errors:
        raise errors[0]


def _submit(work: Callable[[], None], number: int) -> list[Future[None]]:
    global _executor, _size
    if _executor is None or _size < number:
        _size = max(number, _size)
        _executor = ThreadPoolExecutor(_size, thread_name_prefix="fastopt")
    futures: list[Future[None]] = []
    try:
        for _ in range(number):
            futures.append(_executor.submit(work))
    except RuntimeError:  # the process ends, or no more threads can be had: fewer will do
        pass
    return futures


def _forget() -> None:
    global _executor
    _executor = None  # its threads don't exist in a child process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
