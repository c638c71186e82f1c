"""The physical limit, measured: plain C with the memory traffic of a workload and little else."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench import data
from bench.contestant import Builders, Contestant
from bench.peers import cache_directory
from bench.workloads import ROW_STATES, SPARSE_STATES, Aggregation, Dense, Lookup, Sparse, Workload

SOURCE = Path(__file__).with_name("probe.c")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp")
# Page offsets of the arrays: those of one loop must not meet in the same set of the cache.
STAGGER_FLOATS = 272
AHEAD = (8, 16, 32, 64)  # distances of prefetching that are tried
MAX_WIDTH = 1024  # the probe sums repeated rows on its stack
RULES = {"sgd": 0, "momentum": 1, "adagrad": 2, "rmsprop": 3, "adam": 4, "adamw": 4, "ftrl": 5}


def compiled() -> ctypes.CDLL:
    """Compile the probe, once for each version of its source, and load it."""
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    cache = cache_directory()
    library = cache / f"probe-{digest}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as directory:
            made = Path(directory) / library.name
            command = ["gcc", *FLAGS, "-shared", "-fPIC", str(SOURCE), "-o", str(made), "-lm"]
            subprocess.run(command, check=True)
            made.replace(library)
    return ctypes.CDLL(str(library))


def staggered(shape: tuple[int, ...], k: int, value: float = 0.1) -> np.ndarray:
    """Return an array that starts `k` staggers into a page."""
    size = int(np.prod(shape))
    whole = np.empty(size + 8 * STAGGER_FLOATS, np.float32)
    part = whole[k * STAGGER_FLOATS : k * STAGGER_FLOATS + size].reshape(shape)
    part[...] = value
    return part


class States(list[np.ndarray]):
    """The arrays of a table. A list of its own kind, since a plain one can't be held weakly."""


_states: weakref.WeakValueDictionary[tuple[int, ...], States] = weakref.WeakValueDictionary()


def states(rows: int, width: int, number: int) -> States:
    """Return the arrays of a table; those that somebody still holds serve again.

    The limits of a workload are measured in turn; of the largest tables memory holds only one.
    """
    key = (rows, width, number)
    made = _states.get(key)
    if made is None:
        made = _states[key] = States(staggered((rows, width), k) for k in range(number))
    return made


def pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case Dense():
            return {"limit": lambda: _dense(work, threads)}
        case Sparse() if work.width <= MAX_WIDTH:
            return {
                "limit": lambda: _rows(work, threads, in_order=False),
                "limit, rows ascending": lambda: _rows(work, threads, in_order=True),
            }
        case Lookup(task="gather" | "pooled"):
            return {"limit": lambda: _lookup(work, threads)}
        case Aggregation(task="add_n"):
            return {"limit": lambda: _add_n(work, threads)}
        case Aggregation(task="clip"):
            return {"limit": lambda: _clip(work, threads)}
    return {}


def _keep(step: Callable[[], object], *arrays: object) -> Contestant:
    """Keep arrays alive whose addresses a step uses."""
    return Contestant(lambda kept=arrays: step())


def _dense(work: Dense, threads: int) -> Contestant:
    probe = compiled()
    arrays = [staggered((work.size,), k % 4, 0.1) for k in range(4 * work.count)]
    if work.size >= 1 << 20:  # arrays that the rule doesn't read need no memory
        used = {"sgd": 2, "momentum": 3, "adagrad": 3}.get(work.rule, 4)
        arrays = arrays[:used] + [arrays[0]] * (4 - used)
    x, n = pointers(arrays), ctypes.c_long(work.size)
    count, rule = ctypes.c_long(work.count), RULES[work.rule]
    return _keep(lambda: probe.dense(rule, x, count, n, threads), arrays)


def _best_distance(step: Callable[[int], object]) -> Callable[[], object]:
    """Return the step at the distance of prefetching that is quickest here."""

    def seconds(ahead: int) -> float:
        taken = []
        for _ in range(3):
            start = time.perf_counter()
            step(ahead)
            taken.append(time.perf_counter() - start)
        return min(taken)

    step(AHEAD[0])
    best = min(AHEAD, key=seconds)
    return lambda: step(best)


def _rows(work: Sparse, threads: int, in_order: bool) -> Contestant:
    probe = compiled()
    batches = []
    for ids in data.batches_of_ids(work):
        unique, first, counts = np.unique(ids, return_index=True, return_counts=True)
        if not in_order:
            arrival = np.argsort(first, kind="stable")
            unique, counts = np.ascontiguousarray(unique[arrival]), counts[arrival]
        batches.append((unique, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)))
    turn = itertools.cycle(batches)
    arrays = states(work.rows, work.width, SPARSE_STATES[work.rule])
    values = data.numbers((work.lookups, work.width))
    numbers = np.full(work.rows, 0.1, np.float32) if work.rule in ROW_STATES else None
    one_a_row = None if numbers is None else address(numbers)
    x, width = pointers(arrays), ctypes.c_long(work.width)

    def step(ahead: int) -> None:
        unique, starts = next(turn)
        probe.rows(
            x, len(arrays), one_a_row, width, address(unique), address(starts),
            ctypes.c_long(len(unique)), address(values), threads, ctypes.c_long(ahead),
        )  # fmt: skip

    return _keep(_best_distance(step), arrays, numbers)


def _lookup(work: Lookup, threads: int) -> Contestant:
    probe = compiled()
    ids = data.ids(work.ids, work.rows, work.lookups)
    table = data.numbers((work.rows, work.width))
    weights = data.numbers((work.lookups,), seed=3)
    n = work.lookups // work.bag
    out = np.zeros((n, work.width), np.float32)

    def step(ahead: int) -> None:
        probe.pooled(
            address(table), ctypes.c_long(work.width), address(ids), address(weights),
            ctypes.c_long(n), ctypes.c_long(work.bag), address(out), threads, ctypes.c_long(ahead),
        )  # fmt: skip

    return _keep(_best_distance(step), table)


def _add_n(work: Aggregation, threads: int) -> Contestant:
    probe = compiled()
    terms = [staggered((work.size,), k % 8) for k in range(work.count)]
    out = staggered((work.size,), work.count % 8)
    x, count, n = pointers(terms), ctypes.c_long(work.count), ctypes.c_long(work.size)
    return _keep(lambda: probe.add_n(x, count, n, address(out), threads), terms)


def _clip(work: Aggregation, threads: int) -> Contestant:
    probe = compiled()
    probe.clip.restype = ctypes.c_double
    given = [staggered((work.size,), 0) for _ in range(work.count)]
    out = [staggered((work.size,), 1) for _ in range(work.count)]
    x, y = pointers(given), pointers(out)
    count, n = ctypes.c_long(work.count), ctypes.c_long(work.size)
    return _keep(lambda: probe.clip(x, y, count, n, threads), given, out)
