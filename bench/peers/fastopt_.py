"""fastopt itself, as its documentation uses it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse

import fastopt as fo
from bench import data, models
from bench.contestant import Builders, Contestant, Unsupported
from bench.workloads import (
    Aggregation,
    Clicks,
    Dense,
    Factorisation,
    Hogwild,
    LinearFtrl,
    Lookup,
    Sparse,
    Word2vec,
    Workload,
)

RATE = 1e-3
RULES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "sgd": ("GradientDescentOptimizer", (RATE,)),
    "momentum": ("MomentumOptimizer", (RATE, 0.9)),
    "adagrad": ("AdagradOptimizer", (RATE,)),
    "rowwise_adagrad": ("RowWiseAdagradOptimizer", (RATE,)),
    "rmsprop": ("RMSPropOptimizer", (RATE,)),
    "adam": ("AdamOptimizer", (RATE,)),
    "adamw": ("AdamWOptimizer", (0.01, RATE)),
    "lazy_adam": ("LazyAdamOptimizer", (RATE,)),
    "ftrl": ("FtrlOptimizer", (RATE,)),
}


def optimizer(rule: str) -> fo.Optimizer:
    """Make the optimizer of a rule, which this version may not have yet."""
    name, arguments = RULES[rule]
    if not hasattr(fo, name):
        raise Unsupported(f"no {name}")
    return getattr(fo, name)(*arguments)


def builders(work: Workload, threads: int) -> Builders:
    fo.set_num_threads(1 if isinstance(work, Hogwild) else threads)
    match work:
        case Dense():
            return {"fastopt": lambda: _dense(work)}
        case Sparse():
            return {"fastopt": lambda: _sparse(work)}
        case Aggregation():
            return {"fastopt": lambda: _aggregation(work)}
        case Lookup():
            return {"fastopt": lambda: _lookup(work)}
        case Clicks():
            return {"fastopt": lambda: _clicks(work)}
        case LinearFtrl():
            return {"fastopt": lambda: _linear(work)}
        case Factorisation():
            return {"fastopt": lambda: _factorisation(work)}
        case Hogwild():
            return {"fastopt": lambda: _hogwild(work, threads)}
        case Word2vec():
            return {"fastopt": lambda: _word2vec(work, threads)}
    return {}


def _dense(work: Dense) -> Contestant:
    ours = optimizer(work.rule)
    with fo.Graph().as_default():
        variables = [fo.Variable(data.numbers((work.size,))) for _ in range(work.count)]
    pairs = [(data.numbers((work.size,), k + 1), v) for k, v in enumerate(variables)]
    return Contestant(lambda: ours.apply_gradients(pairs))


def _table(rows: int, width: int, value: float = 0.1) -> fo.Variable:
    # Its own memory: of a shared one all rows would be brought up to date after every step.
    with fo.Graph().as_default():
        return fo.Variable(np.full((rows, width), value, np.float32))


def _sparse(work: Sparse) -> Contestant:
    ours = optimizer(work.rule)
    table = _table(work.rows, work.width)
    turn = itertools.cycle(data.batches_of_ids(work))
    values = data.numbers((work.lookups, work.width))
    shape = (work.rows, work.width)

    def step() -> None:
        # New slices at every step, as a training loop makes them: nothing is grouped beforehand.
        ours.apply_gradients([(fo.IndexedSlices(values, next(turn), shape), table)])

    return Contestant(step)


def _aggregation(work: Aggregation) -> Contestant:
    if work.task in ("add_n", "clip"):
        dense = [data.numbers((work.size,), k + 1) for k in range(work.count)]
        if work.task == "clip":
            return Contestant(lambda: fo.clip_by_global_norm(dense, 1e-3))
        from fastopt.autodiff.aggregation import add_n  # what a shared variable's gradients meet

        return Contestant(lambda: add_n(dense, [False] * len(dense)))
    ids = data.ids(work.ids, work.size, work.count)
    shape = (work.size, work.width)
    if work.task == "coalesce":
        values = data.numbers((work.count, work.width))
        return Contestant(lambda: fo.IndexedSlices(values, ids, shape).coalesce())
    matrix = csr_gradient(work)
    table = _table(*shape)
    ours = optimizer("adagrad")
    return Contestant(lambda: ours.apply_gradients([(matrix, table)]))


def csr_gradient(work: Aggregation) -> scipy.sparse.csr_array:
    """Return a gradient of which some rows have all their entries stored."""
    rows = np.unique(data.ids(work.ids, work.size, work.count))
    counts = np.zeros(work.size + 1, np.int64)
    counts[rows + 1] = work.width
    columns = np.tile(np.arange(work.width), len(rows))
    return scipy.sparse.csr_array(
        (data.numbers((len(columns),)), columns, np.cumsum(counts)), shape=(work.size, work.width)
    )


def _lookup(work: Lookup) -> Contestant:
    with fo.Graph().as_default():
        table = fo.Variable(data.numbers((work.rows, work.width)))
    ids = data.ids(work.ids, work.rows, work.lookups)
    if work.task == "gather":

        def gather() -> None:
            with fo.eager_mode():
                fo.embedding_lookup(table, ids)

        return Contestant(gather)
    bags = fo.RaggedIds(ids, np.arange(0, work.lookups + 1, work.bag))
    weights = data.numbers((work.lookups,), 3)
    above = data.numbers((work.lookups // work.bag, work.width), 4)

    def pooled() -> Any:
        return fo.embedding_lookup_sparse(table, bags, weights, combiner="sum")

    if work.task == "pooled":

        def forward() -> None:
            with fo.eager_mode():
                pooled()

        return Contestant(forward)
    if work.task == "pooled_gradient":
        return Contestant(lambda: fo.gradients(pooled(), [table], grad_ys=[above]))
    ours = optimizer("adagrad")

    def update() -> None:
        ours.apply_gradients(ours.compute_gradients(pooled(), [table], grad_loss=above))

    return Contestant(update)


def _network(layers: list[tuple[fo.Variable, fo.Variable]], x: Any) -> Any:
    for w, b in layers[:-1]:
        x = fo.nn.linear(x, w, b, fo.nn.relu)
    return fo.nn.linear(x, *layers[-1])


def _clicks(work: Clicks) -> Contestant:
    """One merged table, a Variable for each weight, everything through `minimize`."""
    task = models.ClickTask(work)
    with fo.Graph().as_default():
        table = fo.Variable(task.tables(), name="tables")
        layers = [(fo.Variable(w), fo.Variable(b)) for w, b in task.layers()]
    ours = fo.AdagradOptimizer(models.LEARNING_RATE, models.INITIAL_ACCUMULATOR)
    flat = work.columns * work.width
    turn = itertools.cycle(range(models.BATCHES))
    batches = [task.batch(k) for k in range(models.BATCHES + 1)]
    batches = [(ids + task.offsets, dense, labels) for ids, dense, labels in batches]

    def logits(ids: np.ndarray, dense: np.ndarray) -> Any:
        rows = fo.embedding_lookup(table, ids)
        return _network(layers, [rows.reshape(-1, flat), dense])

    def step() -> None:
        ids, dense, labels = batches[next(turn)]
        ours.minimize(
            lambda: np.mean(
                fo.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits(ids, dense))
            )
        )

    def loss() -> float:
        ids, dense, labels = batches[models.BATCHES]
        return models.log_loss(labels, np.asarray(logits(ids, dense)))

    return Contestant(step, loss=loss, steps_to_loss=models.BATCHES)


def _linear(work: LinearFtrl) -> Contestant:
    task = models.LinearTask(work)
    with fo.Graph().as_default():
        w = fo.Variable(np.zeros(work.features, np.float32))
    ours = fo.FtrlOptimizer(models.FTRL_RATE, initial_accumulator_value=models.FTRL_ACCUMULATOR)
    indptr = np.arange(work.batch + 1) * work.per_row
    ones = np.ones(work.batch * work.per_row, np.float32)
    shape = (work.batch, work.features)
    batches = [task.batch(k) for k in range(models.BATCHES)]
    rows = [scipy.sparse.csr_array((ones, ids.reshape(-1), indptr), shape) for ids, _ in batches]
    turn = itertools.cycle(range(models.BATCHES))

    def step() -> None:
        k = next(turn)
        labels = batches[k][1]
        ours.minimize(
            lambda: np.mean(
                fo.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=rows[k] @ w)
            )
        )

    return Contestant(step, loss=lambda: task.loss(w.value), steps_to_loss=models.BATCHES)


def _factorisation(work: Factorisation) -> Contestant:
    task = models.RatingTask(work)
    with fo.Graph().as_default():
        users, items = (fo.Variable(x) for x in task.factors())
    ours = fo.AdagradOptimizer(models.LEARNING_RATE, models.INITIAL_ACCUMULATOR)
    batches = [task.batch(k) for k in range(models.BATCHES)]
    turn = itertools.cycle(batches)

    def step() -> None:
        u, i, ratings = next(turn)

        def loss() -> Any:
            scores = fo.embedding_dot(users, u, items, i)
            return fo.nn.mean_squared_error(labels=ratings, predictions=scores)

        ours.minimize(loss)

    return Contestant(
        step,
        loss=lambda: task.loss(users.value, items.value),
        steps_to_loss=models.BATCHES,
    )


def _hogwild(work: Hogwild, threads: int) -> Contestant:
    """Every thread takes its share of the batches; all train the same tables."""
    task = models.RatingTask(work.ratings)
    with fo.Graph().as_default():
        users, items = (fo.Variable(x) for x in task.factors())
    ours = fo.AdagradOptimizer(models.LEARNING_RATE, models.INITIAL_ACCUMULATOR)
    batches = [task.batch(k) for k in range(models.BATCHES)]
    pool = ThreadPoolExecutor(threads)

    def learn(first: int) -> None:
        for k in range(first, work.batches, threads):
            u, i, ratings = batches[k % models.BATCHES]

            def loss(u: Any = u, i: Any = i, ratings: Any = ratings) -> Any:
                scores = fo.embedding_dot(users, u, items, i)
                return fo.nn.mean_squared_error(labels=ratings, predictions=scores)

            ours.minimize(loss)

    return Contestant(
        lambda: list(pool.map(learn, range(threads))),
        loss=lambda: task.loss(users.value, items.value),
        steps_to_loss=1,
    )


def _word2vec(work: Word2vec, threads: int) -> Contestant:
    """One pass: windows and negatives are drawn with NumPy, pairs are learned in batches.

    With more than one thread the next part is drawn while one is learned.
    """
    task = models.WordTask(work)
    rng = np.random.default_rng(3)
    start = (rng.random((work.vocabulary, work.width), dtype=np.float32) - 0.5) / work.width
    with fo.Graph().as_default():
        vectors = fo.Variable(start)
        contexts = fo.Variable(np.zeros((work.vocabulary, work.width), np.float32))
    # Adagrad: a batch sums the gradients of a frequent word, which plain descent overshoots.
    ours = fo.AdagradOptimizer(models.WORD_RATE, initial_accumulator_value=models.WORD_ACCUMULATOR)

    def learn(center: np.ndarray, candidates: np.ndarray, labels: np.ndarray) -> None:
        def loss() -> Any:
            logits = fo.embedding_dot(vectors, center, contexts, candidates)
            return np.sum(fo.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))

        ours.minimize(loss)

    def draw(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        centers, words = task.pairs(part, rng)
        candidates = np.empty((len(words), 1 + work.negatives), np.int32)
        candidates[:, 0] = words
        candidates[:, 1:] = task.draw(rng, (len(words), work.negatives))
        return centers, candidates

    labels = np.zeros((work.batch, 1 + work.negatives), np.float32)
    labels[:, 0] = 1.0
    parts = np.array_split(task.training, max(1, work.words // 10_000))
    drawer = ThreadPoolExecutor(1)

    def drawn() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if threads == 1:
            yield from map(draw, parts)
            return
        ahead = drawer.submit(draw, parts[0])
        for part in parts[1:]:
            ready = ahead.result()
            ahead = drawer.submit(draw, part)
            yield ready
        yield ahead.result()

    def step() -> None:
        for centers, candidates in drawn():
            for k in range(0, len(centers), work.batch):
                center = centers[k : k + work.batch]
                learn(center, candidates[k : k + work.batch], labels[: len(center)])

    return Contestant(step, loss=lambda: task.loss(vectors.value, contexts.value), steps_to_loss=1)
