"""What the docs say in numbers beside the table: ``make bench ARGS=--asides``.

Every part takes its contestants in turn, in one process and one thread unless it says so, and
prints medians. ``OPENBLAS_NUM_THREADS=1`` keeps products to one thread, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import fastopt as fo
from bench import data

ROWS, WIDTH, LOOKUPS, BATCHES = 1_000_000, 64, 65_536, 8
KINDS = ("zipf", "uniform")


def take_turns(contestants: Mapping[str, Callable[[int], Any]], rounds: int) -> dict[str, float]:
    """Return the median milliseconds of each; the first third of the rounds is not counted."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            run(turn)
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(each[rounds // 3 :]) for name, each in times.items()}


def show(title: str, medians: Mapping[str, float]) -> None:
    """Print one line."""
    print(f"{title}: " + ", ".join(f"{name} {value:.2f} ms" for name, value in medians.items()))


def _batches(kind: str, rows: int) -> list[np.ndarray]:
    return [data.ids(kind, rows, LOOKUPS, seed) for seed in range(1, BATCHES + 1)]


def _step(optimizer: fo.Optimizer, dtype: Any, ids: list[np.ndarray]) -> Callable[[int], Any]:
    table = fo.Variable(np.full((ROWS, WIDTH), 0.1, dtype))
    values = data.numbers((LOOKUPS, WIDTH))

    def step(turn: int) -> None:
        slices = fo.IndexedSlices(values, ids[turn % BATCHES], (ROWS, WIDTH))
        optimizer.apply_gradients([(slices, table)])

    return step


def _looked_up(
    optimizer: fo.Optimizer, ids: list[np.ndarray]
) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    """Return a look-up, and a step on the rows that it has looked up."""
    table = fo.Variable(np.full((ROWS, WIDTH), 0.1, np.float32))
    values = data.numbers((LOOKUPS, WIDTH))

    def step(turn: int) -> None:
        optimizer.apply_gradients([(fo.IndexedSlices(values, ids[turn % BATCHES]), table)])

    return lambda turn: fo.embedding_lookup(table, ids[turn % BATCHES]), step


def adam() -> None:
    """`docs/adam.md`: steps on rows that were, and were not, looked up before."""
    for kind in KINDS:
        ids = _batches(kind, ROWS)
        contestants: dict[str, Callable[[int], Any]] = {}
        for name, rule in (("LazyAdam", fo.LazyAdamOptimizer), ("Adam", fo.AdamOptimizer)):
            contestants[f"{name} step"] = _step(rule(1e-3), np.float32, ids)
            look, step = _looked_up(rule(1e-3), ids)
            contestants |= {f"{name} look-up": look, f"{name} step after it": step}
        show(f"Adam, {kind}", take_turns(contestants, 24))


def rounding() -> None:
    """`docs/half_precision.md`: 16-bit tables with masters, and rounded at random."""
    import ml_dtypes

    for half in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        for kind in KINDS:
            ids = _batches(kind, ROWS)
            free = fo.stochastic_rounding(fo.AdagradOptimizer(0.01))
            contestants = {
                "float32": _step(fo.AdagradOptimizer(0.01), np.float32, ids),
                "with masters": _step(fo.AdagradOptimizer(0.01), half, ids),
                "at random": _step(free, half, ids),
            }
            show(f"{half.name}, {kind}", take_turns(contestants, 24))


def eight_bits() -> None:
    """`docs/half_precision.md`: tables of 8 bits against float32."""
    for rows, width in ((1_000_000, 64), (10_000_000, 16)):
        table = fo.Variable(data.numbers((rows, width)))  # its memory begins with a cache line
        served, ids = fo.quantize_table(table), _batches("uniform", rows)
        print(f"{rows} x {width}: {4 * rows * width / served.nbytes:.1f} times less memory")
        contestants = {
            "float32": _single(table, ids),
            "8 bits": _single(served, ids),
            "bags, float32": _bags(table, ids),
            "bags, 8 bits": _bags(served, ids),
        }
        for threads in (1, 2):
            fo.set_num_threads(threads)
            show(f"{rows} x {width}, threads {threads}", take_turns(contestants, 48))
        fo.set_num_threads(1)


def _single(table: Any, ids: list[np.ndarray]) -> Callable[[int], Any]:
    return lambda turn: fo.embedding_lookup(table, ids[turn % BATCHES])


def _bags(table: Any, ids: list[np.ndarray]) -> Callable[[int], Any]:
    offsets = np.arange(0, LOOKUPS + 1, 16)
    weights = np.ones(LOOKUPS, np.float32)
    return lambda turn: fo.embedding_lookup_sparse(
        table, (ids[turn % BATCHES], offsets), weights, combiner="sum"
    )


def gates() -> None:
    """`docs/gradients.md`: time, and memory of temporaries, of a stack of layers."""
    for layers, width, batch in ((6, 2048, 64), (8, 512, 256)):
        contestants, memory = {}, {}
        for name in ("GATE_OP", "GATE_NONE"):
            contestants[name] = _layers(layers, width, batch, getattr(fo.Optimizer, name))
            fo.empty_cache()
            contestants[name](0)
            memory[name] = fo.cached_bytes() / 2**20
        print(", ".join(f"{name} {size:.1f} MiB" for name, size in memory.items()))
        show(f"{layers} layers of {width}, batch {batch}", take_turns(contestants, 15))


def _layers(layers: int, width: int, batch: int, gate: int) -> Callable[[int], Any]:
    x = data.numbers((batch, width))
    stack = [fo.Variable(data.numbers((width, width), k)) for k in range(layers)]
    optimizer = fo.AdagradOptimizer(0.01)

    def loss() -> Any:
        y: Any = x
        for w in stack:
            y = np.tanh(y @ w)
        return np.mean(y * y)

    return lambda turn: optimizer.minimize(loss, gate_gradients=gate)


def main() -> None:
    """Measure everything, which takes a minute."""
    fo.set_num_threads(1)
    for part in (adam, rounding, eight_bits, gates):
        part()
