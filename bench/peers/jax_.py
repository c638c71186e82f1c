"""JAX with optax: whole steps compiled, buffers donated. Its gradients of tables are dense."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bench import data, models
from bench.contestant import Builders, Contestant
from bench.workloads import Clicks, Dense, Factorisation, Lookup, Sparse, Workload

RATE = 1e-3
RULES: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optax.sgd(RATE),
    "momentum": lambda: optax.sgd(RATE, momentum=0.9),
    "adagrad": lambda: optax.adagrad(RATE),
    "rmsprop": lambda: optax.rmsprop(RATE),
    "adam": lambda: optax.adam(RATE),
    "adamw": lambda: optax.adamw(RATE),
}
wait = jax.block_until_ready


def start(threads: int) -> None:
    """One thread: its pool takes as many threads as there are processors."""
    if threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case Dense() if work.rule in RULES:
            return {"optax": lambda: _dense(work)}
        case Sparse(rule="sgd"):
            return {"JAX at[].add": lambda: _sparse_sgd(work)}
        case Sparse(rule="adagrad"):
            return {"JAX dense gradient": lambda: _sparse_adagrad(work)}
        case Lookup(task="gather"):
            return {"JAX": lambda: _gather(work)}
        case Clicks():
            return {"JAX + optax": lambda: _clicks(work)}
        case Factorisation():
            return {"JAX + optax": lambda: _factorisation(work)}
    return {}


def _owned(tree: Any) -> Any:
    """Return arrays that JAX allocated itself, so that they can be donated."""
    return jax.tree.map(lambda x: jnp.asarray(x) + 0, tree)


def _dense(work: Dense) -> Contestant:
    theirs = RULES[work.rule]()
    parameters = _owned([data.numbers((work.size,)) for _ in range(work.count)])
    gradients = _owned([data.numbers((work.size,), k + 1) for k in range(work.count)])
    box = [parameters, theirs.init(parameters)]
    del parameters

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(p: Any, state: Any, g: Any) -> Any:
        changes, state = theirs.update(g, state, p)
        return optax.apply_updates(p, changes), state

    def step() -> None:
        box[:] = wait(update(*box, gradients))

    return Contestant(step)


def _slices(work: Sparse) -> tuple[Any, Any, Any]:
    ids = jnp.asarray(data.ids(work.ids, work.rows, work.lookups).astype(np.int32))
    values = jnp.asarray(data.numbers((work.lookups, work.width)))
    return jnp.full((work.rows, work.width), 0.1, jnp.float32), ids, values


def _sparse_sgd(work: Sparse) -> Contestant:
    table, ids, values = _slices(work)
    box = [table]
    del table

    @partial(jax.jit, donate_argnums=0)
    def update(table: Any, ids: Any, values: Any) -> Any:
        return table.at[ids].add(-RATE * values)

    def step() -> None:
        box[0] = wait(update(box[0], ids, values))

    return Contestant(step)


def _sparse_adagrad(work: Sparse) -> Contestant:
    table, ids, values = _slices(work)
    box = [table, table + 0]
    del table

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(table: Any, accumulator: Any, ids: Any, values: Any) -> Any:
        g = jnp.zeros_like(table).at[ids].add(values)
        accumulator = accumulator + g * g
        return table - RATE * g / jnp.sqrt(accumulator), accumulator

    def step() -> None:
        box[:] = wait(update(*box, ids, values))

    return Contestant(step)


def _gather(work: Lookup) -> Contestant:
    table = jnp.asarray(data.numbers((work.rows, work.width)))
    ids = jnp.asarray(data.ids(work.ids, work.rows, work.lookups).astype(np.int32))
    gather = jax.jit(lambda table, ids: jnp.take(table, ids, axis=0, mode="clip"))
    return Contestant(lambda: wait(gather(table, ids)))


def _adagrad() -> Any:
    return optax.adagrad(
        models.LEARNING_RATE, initial_accumulator_value=models.INITIAL_ACCUMULATOR, eps=1e-12
    )


def _trained(
    loss_of: Callable[..., Any], parameters: Any, batches: list[Any]
) -> tuple[list[Any], Callable[[], None]]:
    """Return a box with the parameters and the step that trains them."""
    theirs = _adagrad()
    box = [_owned(parameters), None]
    box[1] = theirs.init(box[0])

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(p: Any, state: Any, *batch: Any) -> Any:
        changes, state = theirs.update(jax.grad(loss_of)(p, *batch), state, p)
        return optax.apply_updates(p, changes), state

    turn = itertools.cycle(batches)

    def step() -> None:
        box[:] = wait(update(*box, *next(turn)))

    return box, step


def _clicks(work: Clicks) -> Contestant:
    task = models.ClickTask(work)

    def logits(p: Any, ids: Any, dense: Any) -> Any:
        tables, layers = p
        x = jnp.concatenate([tables[ids].reshape(work.batch, -1), dense], 1)
        for w, b in layers[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = layers[-1]
        return x @ w + b

    def loss_of(p: Any, ids: Any, dense: Any, labels: Any) -> Any:
        return optax.sigmoid_binary_cross_entropy(logits(p, ids, dense), labels).mean()

    batches = []
    for k in range(models.BATCHES + 1):
        ids, dense, labels = task.batch(k)
        columns = (ids + task.offsets).astype(np.int32)
        batches.append((jnp.asarray(columns), jnp.asarray(dense), jnp.asarray(labels)))
    box, step = _trained(loss_of, (task.tables(), task.layers()), batches[:-1])

    def loss() -> float:
        ids, dense, labels = batches[-1]
        return models.log_loss(np.asarray(labels), np.asarray(logits(box[0], ids, dense)))

    return Contestant(step, loss=loss, steps_to_loss=models.BATCHES)


def _factorisation(work: Factorisation) -> Contestant:
    task = models.RatingTask(work)

    def loss_of(p: Any, u: Any, i: Any, ratings: Any) -> Any:
        return jnp.mean((jnp.sum(p[0][u] * p[1][i], axis=1) - ratings) ** 2)

    batches = [tuple(map(jnp.asarray, task.batch(k))) for k in range(models.BATCHES)]
    box, step = _trained(loss_of, task.factors(), batches)

    def loss() -> float:
        return task.loss(np.asarray(box[0][0]), np.asarray(box[0][1]))

    return Contestant(step, loss=loss, steps_to_loss=models.BATCHES)
