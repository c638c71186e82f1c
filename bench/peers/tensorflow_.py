"""TensorFlow's v1 optimizers, each step one compiled `tf.function`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bench import data, models
from bench.contestant import Builders, Contestant
from bench.workloads import (
    Aggregation,
    Clicks,
    Dense,
    Factorisation,
    LinearFtrl,
    Lookup,
    Sparse,
    Workload,
)

RATE = 1e-3
v1 = tf.compat.v1.train
RULES: dict[str, Callable[[], Any]] = {
    "sgd": lambda: v1.GradientDescentOptimizer(RATE),
    "momentum": lambda: v1.MomentumOptimizer(RATE, 0.9),
    "adagrad": lambda: v1.AdagradOptimizer(RATE),
    "rmsprop": lambda: v1.RMSPropOptimizer(RATE),
    "adam": lambda: v1.AdamOptimizer(RATE),
    "ftrl": lambda: v1.FtrlOptimizer(RATE),
}


def start(threads: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case Dense() if work.rule in RULES:
            return {"TensorFlow": lambda: _dense(work)}
        case Sparse() if work.rule in RULES:
            return {"TensorFlow": lambda: _sparse(work)}
        case Sparse(rule="lazy_adam"):
            return {"TensorFlow unique + scatter": lambda: _lazy_adam(work)}
        case Aggregation(task="add_n" | "clip" | "coalesce"):
            return {"TensorFlow": lambda: _aggregation(work)}
        case Lookup():
            return {"TensorFlow": lambda: _lookup(work)}
        case Clicks():
            return {
                "TensorFlow, 26 tables": lambda: _clicks(work, merged=False),
                "TensorFlow, one table": lambda: _clicks(work, merged=True),
            }
        case LinearFtrl():
            return {"TensorFlow": lambda: _linear(work)}
        case Factorisation():
            return {"TensorFlow": lambda: _factorisation(work)}
    return {}


def _dense(work: Dense) -> Contestant:
    variables = [tf.Variable(data.numbers((work.size,))) for _ in range(work.count)]
    gradients = [tf.constant(data.numbers((work.size,), k + 1)) for k in range(work.count)]
    theirs = RULES[work.rule]()

    @tf.function
    def step() -> None:
        theirs.apply_gradients(zip(gradients, variables, strict=True))

    return Contestant(step)


def _slices(work: Sparse) -> tuple[Any, Iterator[Any], Any]:
    table = tf.Variable(tf.fill([work.rows, work.width], 0.1))
    turn = itertools.cycle([tf.constant(ids) for ids in data.batches_of_ids(work)])
    return table, turn, tf.constant(data.numbers((work.lookups, work.width)))


def _sparse(work: Sparse) -> Contestant:
    table, turn, values = _slices(work)
    theirs = RULES[work.rule]()
    shape = tf.constant([work.rows, work.width], tf.int64)

    @tf.function
    def step(ids: Any) -> None:
        theirs.apply_gradients([(tf.IndexedSlices(values, ids, shape), table)])

    return Contestant(lambda: step(next(turn)))


def _lazy_adam(work: Sparse) -> Contestant:
    """TensorFlow Addons' recipe: unique, gather the slots, scatter."""
    table, turn, values = _slices(work)
    m, v = tf.Variable(tf.zeros_like(table)), tf.Variable(tf.zeros_like(table))

    @tf.function
    def step(ids: Any) -> None:
        rows, inverse = tf.unique(ids)
        g = tf.math.unsorted_segment_sum(values, inverse, tf.shape(rows)[0])
        new_m = 0.9 * tf.gather(m, rows) + 0.1 * g
        new_v = 0.999 * tf.gather(v, rows) + 0.001 * g * g
        m.scatter_update(tf.IndexedSlices(new_m, rows))
        v.scatter_update(tf.IndexedSlices(new_v, rows))
        table.scatter_sub(tf.IndexedSlices(RATE * new_m / (tf.sqrt(new_v) + 1e-8), rows))

    return Contestant(lambda: step(next(turn)))


def _aggregation(work: Aggregation) -> Contestant:
    if work.task == "coalesce":
        ids = tf.constant(data.ids(work.ids, work.size, work.count))
        values = tf.constant(data.numbers((work.count, work.width)))

        @tf.function
        def coalesce() -> Any:
            rows, inverse = tf.unique(ids)
            return rows, tf.math.unsorted_segment_sum(values, inverse, tf.shape(rows)[0])

        return Contestant(coalesce)
    dense = [tf.Variable(data.numbers((work.size,), k + 1)) for k in range(work.count)]
    if work.task == "add_n":
        return Contestant(tf.function(lambda: tf.add_n([g.read_value() for g in dense])))

    @tf.function
    def clip() -> Any:
        return tf.clip_by_global_norm([g.read_value() for g in dense], 1e-3)

    return Contestant(clip)


def _lookup(work: Lookup) -> Contestant:
    table = tf.Variable(data.numbers((work.rows, work.width)))
    ids = tf.Variable(data.ids(work.ids, work.rows, work.lookups))
    if work.task == "gather":
        return Contestant(tf.function(lambda: tf.nn.embedding_lookup(table, ids)))
    n = work.lookups // work.bag
    position = np.stack([np.repeat(np.arange(n), work.bag), np.tile(np.arange(work.bag), n)], 1)
    sparse_ids = tf.sparse.SparseTensor(position, ids.read_value(), [n, work.bag])
    weights = tf.sparse.SparseTensor(position, data.numbers((work.lookups,), 3), [n, work.bag])
    above = tf.constant(data.numbers((n, work.width), 4))

    def pooled(sparse_ids: Any, weights: Any) -> Any:
        return tf.nn.embedding_lookup_sparse(table, sparse_ids, weights, combiner="sum")

    @tf.function
    def with_gradient(sparse_ids: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            out = pooled(sparse_ids, weights)
        return tape.gradient(out, table, output_gradients=above)

    theirs = RULES["adagrad"]()

    @tf.function
    def update(sparse_ids: Any, weights: Any) -> None:
        theirs.apply_gradients([(with_gradient(sparse_ids, weights), table)])

    if work.task == "pooled":
        step = tf.function(pooled)
    else:
        step = {"pooled_gradient": with_gradient, "pooled_update": update}[work.task]
    return Contestant(lambda: step(sparse_ids, weights))


def _clicks(work: Clicks, merged: bool) -> Contestant:
    task = models.ClickTask(work)
    all_tables = task.tables()
    parts = [all_tables] if merged else np.split(all_tables, work.columns)
    tables = [tf.Variable(part) for part in parts]
    layers = [(tf.Variable(w), tf.Variable(b)) for w, b in task.layers()]
    variables = [*tables, *(v for pair in layers for v in pair)]
    theirs = v1.AdagradOptimizer(models.LEARNING_RATE, models.INITIAL_ACCUMULATOR)
    batches = []
    for k in range(models.BATCHES + 1):
        ids, dense, labels = task.batch(k)
        columns = ids + task.offsets if merged else np.ascontiguousarray(ids.T)
        batches.append((tf.constant(columns), tf.constant(dense), tf.constant(labels)))

    def logits(columns: Any, dense: Any) -> Any:
        if merged:
            rows = [tf.reshape(tf.nn.embedding_lookup(tables[0], columns), [work.batch, -1])]
        else:
            rows = [tf.nn.embedding_lookup(table, columns[f]) for f, table in enumerate(tables)]
        x = tf.concat([*rows, dense], 1)
        for w, b in layers[:-1]:
            x = tf.nn.relu(tf.matmul(x, w) + b)
        w, b = layers[-1]
        return tf.matmul(x, w) + b

    @tf.function
    def train(columns: Any, dense: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits(columns, dense))
            loss = tf.reduce_mean(losses)
        theirs.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    turn = itertools.cycle(batches[: models.BATCHES])

    def loss() -> float:
        columns, dense, labels = batches[-1]
        return models.log_loss(labels.numpy(), logits(columns, dense).numpy())

    return Contestant(lambda: train(*next(turn)), loss=loss, steps_to_loss=models.BATCHES)


def _linear(work: LinearFtrl) -> Contestant:
    task = models.LinearTask(work)
    w = tf.Variable(tf.zeros([work.features, 1]))
    theirs = v1.FtrlOptimizer(models.FTRL_RATE, initial_accumulator_value=models.FTRL_ACCUMULATOR)
    shape = [work.batch, work.per_row]
    rows, positions = np.indices(shape)
    at = np.stack([rows.reshape(-1), positions.reshape(-1)], 1)
    batches = []
    for k in range(models.BATCHES):
        ids, labels = task.batch(k)
        sparse_ids = tf.sparse.SparseTensor(at, ids.reshape(-1), shape)
        batches.append((sparse_ids, tf.constant(labels[:, None])))

    @tf.function
    def train(ids: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            logits = tf.compat.v1.nn.embedding_lookup_sparse(w, ids, None, combiner="sum")
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
        theirs.apply_gradients([(tape.gradient(loss, w), w)])

    turn = itertools.cycle(batches)
    return Contestant(
        lambda: train(*next(turn)),
        loss=lambda: task.loss(w.numpy()),
        steps_to_loss=models.BATCHES,
    )


def _factorisation(work: Factorisation) -> Contestant:
    task = models.RatingTask(work)
    users, items = (tf.Variable(x) for x in task.factors())
    theirs = v1.AdagradOptimizer(models.LEARNING_RATE, models.INITIAL_ACCUMULATOR)
    batches = [tuple(map(tf.constant, task.batch(k))) for k in range(models.BATCHES)]

    @tf.function
    def train(u: Any, i: Any, ratings: Any) -> None:
        with tf.GradientTape() as tape:
            of_user, of_item = tf.nn.embedding_lookup(users, u), tf.nn.embedding_lookup(items, i)
            loss = tf.reduce_mean((tf.reduce_sum(of_user * of_item, 1) - ratings) ** 2)
        gradients = tape.gradient(loss, [users, items])
        theirs.apply_gradients(zip(gradients, [users, items], strict=True))

    turn = itertools.cycle(batches)
    return Contestant(
        lambda: train(*next(turn)),
        loss=lambda: task.loss(users.numpy(), items.numpy()),
        steps_to_loss=models.BATCHES,
    )
