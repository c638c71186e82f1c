"""NumPy: what a user without a library writes. Its arithmetic uses one thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench import data
from bench.contestant import Builders, Contestant
from bench.workloads import Aggregation, Dense, Lookup, Sparse, Workload

f32 = np.float32
RATE = f32(1e-3)


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case Dense() if work.rule in RULES:
            return {"NumPy": lambda: _dense(work)}
        case Sparse(rule="sgd" | "adagrad"):
            return {"NumPy argsort + reduceat": lambda: _sparse(work)}
        case Aggregation(task="add_n" | "clip" | "coalesce"):
            return {"NumPy": lambda: _aggregation(work)}
        case Lookup(task="gather"):
            table = data.numbers((work.rows, work.width))
            ids = data.ids(work.ids, work.rows, work.lookups)
            return {"NumPy take": lambda: Contestant(lambda: np.take(table, ids, axis=0))}
    return {}


Array = np.ndarray


def _sgd(p: Array, g: Array, m: Array, v: Array) -> None:
    p -= RATE * g


def _momentum(p: Array, g: Array, m: Array, v: Array) -> None:
    m *= f32(0.9)
    m += g
    p -= RATE * m


def _adagrad(p: Array, g: Array, m: Array, v: Array) -> None:
    m += g * g
    p -= RATE * g / np.sqrt(m)


def _rmsprop(p: Array, g: Array, m: Array, v: Array) -> None:
    v *= f32(0.9)
    v += f32(0.1) * (g * g)
    p -= RATE * g / np.sqrt(v + f32(1e-10))


def _adam(p: Array, g: Array, m: Array, v: Array) -> None:
    m *= f32(0.9)
    m += f32(0.1) * g
    v *= f32(0.999)
    v += f32(0.001) * (g * g)
    p -= RATE * m / (np.sqrt(v) + f32(1e-8))


RULES: dict[str, Callable[[Array, Array, Array, Array], None]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adam": _adam,
}


def _dense(work: Dense) -> Contestant:
    update = RULES[work.rule]
    arrays = [
        (
            data.numbers((work.size,)),
            data.numbers((work.size,), k + 1),
            np.full(work.size, 0.1, f32),
            np.full(work.size, 0.1, f32),
        )
        for k in range(work.count)
    ]

    def step() -> None:
        for four in arrays:
            update(*four)

    return Contestant(step)


def summed(ids: Array, values: Array) -> tuple[Array, Array]:
    """Return unique ids and the sums of their rows."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return ordered[first], np.add.reduceat(values[order], first, axis=0)


def _sparse(work: Sparse) -> Contestant:
    ids = data.ids(work.ids, work.rows, work.lookups)
    values = data.numbers((work.lookups, work.width))
    table = np.full((work.rows, work.width), 0.1, f32)
    accumulator = table.copy() if work.rule == "adagrad" else table

    def sgd() -> None:
        rows, g = summed(ids, values)
        table[rows] -= RATE * g

    def adagrad() -> None:
        rows, g = summed(ids, values)
        a = accumulator[rows] + g * g
        accumulator[rows] = a
        table[rows] -= RATE * g / np.sqrt(a)

    return Contestant(adagrad if work.rule == "adagrad" else sgd)


def _aggregation(work: Aggregation) -> Contestant:
    if work.task == "coalesce":
        ids = data.ids(work.ids, work.size, work.count)
        values = data.numbers((work.count, work.width))
        return Contestant(lambda: summed(ids, values))
    dense = [data.numbers((work.size,), k + 1) for k in range(work.count)]

    def add_n() -> None:
        total = dense[0] + dense[1]
        for term in dense[2:]:
            total += term

    def clip() -> None:
        norm = np.sqrt(sum(np.dot(g, g) for g in dense))
        scale = f32(1e-3 / max(norm, 1e-3))
        for g in dense:
            g * scale

    return Contestant(add_n if work.task == "add_n" else clip)
