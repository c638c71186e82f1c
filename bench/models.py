"""The learning tasks of the end-to-end scenarios: data with something to learn, and their loss."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property

import numpy as np

from bench import data
from bench.workloads import Clicks, Factorisation, LinearFtrl, Word2vec

BATCHES = 16  # batches that are made; training goes round. The loss is read after one pass
LEARNING_RATE = 0.05
# Small against the squares of a mean loss's gradients: with 0.1 hardly anything would be learned.
INITIAL_ACCUMULATOR = 1e-8
FTRL_RATE = 0.1
FTRL_ACCUMULATOR = 1e-7
NOISE_TABLE = 1_000_000
WORD_RATE = 0.1
WORD_ACCUMULATOR = 0.1


def log_loss(labels: np.ndarray, logits: np.ndarray) -> float:
    """Return the mean binary cross entropy, in float64."""
    logits = np.asarray(logits, np.float64).reshape(-1)
    return float(np.mean(np.logaddexp(0.0, logits) - labels.reshape(-1) * logits))


def _bernoulli(rng: np.random.Generator, logits: np.ndarray) -> np.ndarray:
    return (rng.random(logits.shape) < 1.0 / (1.0 + np.exp(-logits))).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class ClickTask:
    """Batches of the click model, its first parameters, and rows that are held out."""

    work: Clicks

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        work, rng = self.work, np.random.default_rng(0)
        n = (BATCHES + 1) * work.batch
        ranks = [data.zipf_ranks(rng, work.rows, n) for _ in range(work.columns)]
        columns = np.stack([data.scattered(r, work.rows) for r in ranks], 1)
        dense = rng.standard_normal((n, work.dense), dtype=np.float32)
        effect = rng.normal(0.0, 0.6, (work.columns, 64)).astype(np.float32)
        logits = dense[:, 0] - 1.0 + sum(effect[k, r % 64] for k, r in enumerate(ranks)) / 2
        return columns, dense, _bernoulli(rng, logits)

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ids (batch, columns), dense columns and labels (batch, 1).

        Batch number BATCHES is held out.
        """
        part = slice(k * self.work.batch, (k + 1) * self.work.batch)
        columns, dense, labels = self._rows
        return columns[part], dense[part], labels[part, None]

    @property
    def offsets(self) -> np.ndarray:
        """What to add to the ids of each column where all tables are one."""
        return np.arange(self.work.columns) * self.work.rows

    def tables(self) -> np.ndarray:
        """Return all tables, one after the other."""
        return data.numbers((self.work.columns * self.work.rows, self.work.width), 1, 0.05)

    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return weights (in, out) and biases."""
        work, rng = self.work, np.random.default_rng(2)
        sizes = [work.columns * work.width + work.dense, *work.hidden, 1]
        return [
            (
                (rng.standard_normal((a, b)) / math.sqrt(a)).astype(np.float32),
                np.zeros(b, np.float32),
            )
            for a, b in zip(sizes, sizes[1:], strict=False)
        ]


@dataclasses.dataclass(frozen=True)
class LinearTask:
    """Sparse rows for logistic regression, with repeated features in a row summed."""

    work: LinearFtrl

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        work, rng = self.work, np.random.default_rng(0)
        n = (BATCHES + 1) * work.batch
        ranks = data.zipf_ranks(rng, work.features, n * work.per_row).reshape(n, work.per_row)
        effect = np.random.default_rng(1).normal(0.0, 0.5, 4096)
        effect[[0, 4095]] = 0.0  # the most frequent one, and all the rare ones
        logits = effect[np.minimum(ranks, 4095)].sum(1) / 2 - 0.5
        return data.scattered(ranks, work.features), _bernoulli(rng, logits)

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return feature numbers (batch, per_row) and labels (batch,); k = BATCHES is held out."""
        part = slice(k * self.work.batch, (k + 1) * self.work.batch)
        return self._rows[0][part], self._rows[1][part]

    def loss(self, weights: np.ndarray) -> float:
        """Return the loss of weights on the rows held out."""
        ids, labels = self.batch(BATCHES)
        return log_loss(labels, np.asarray(weights, np.float64).reshape(-1)[ids].sum(1))


@dataclasses.dataclass(frozen=True)
class RatingTask:
    """Ratings that are inner products of hidden vectors, plus noise."""

    work: Factorisation

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        work, rng = self.work, np.random.default_rng(0)
        n = (BATCHES + 1) * work.batch
        users = data.scattered(data.zipf_ranks(rng, work.users, n), work.users)
        items = data.scattered(data.zipf_ranks(rng, work.items, n), work.items)
        of_user = data.numbers((work.users, 4), 5, 0.7)
        of_item = data.numbers((work.items, 4), 6, 0.7)
        exact = np.sum(of_user[users] * of_item[items], axis=1)
        return users, items, (exact + rng.normal(0, 0.1, n)).astype(np.float32)

    def batch(self, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return users, items and ratings, each (batch,); k = BATCHES is held out."""
        part = slice(k * self.work.batch, (k + 1) * self.work.batch)
        return tuple(array[part] for array in self._rows)  # type: ignore[return-value]

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first vectors of users and items."""
        work = self.work
        return (
            data.numbers((work.users, work.width), 3, 0.1),
            data.numbers((work.items, work.width), 4, 0.1),
        )

    def loss(self, users: np.ndarray, items: np.ndarray) -> float:
        """Return the mean squared error on the ratings held out."""
        u, i, ratings = self.batch(BATCHES)
        return float(np.mean((np.sum(users[u] * items[i], axis=1) - ratings) ** 2))


@dataclasses.dataclass(frozen=True)
class WordTask:
    """A corpus in which words of one topic stand together."""

    work: Word2vec
    SENTENCE: int = 20
    TOPICS: int = 50

    @cached_property
    def sentences(self) -> np.ndarray:
        """Word numbers, one row a sentence; small ones are frequent. A tenth is held out."""
        work, rng = self.work, np.random.default_rng(0)
        n = work.words * 10 // 9 // self.SENTENCE
        topic = rng.integers(0, self.TOPICS, (n, 1))
        ranks = data.zipf_ranks(rng, work.vocabulary // self.TOPICS, n * self.SENTENCE)
        words = ranks.reshape(n, self.SENTENCE) * self.TOPICS + topic
        anywhere = data.zipf_ranks(rng, work.vocabulary, n * self.SENTENCE)
        return np.where(rng.random(words.shape) < 0.2, anywhere.reshape(words.shape), words)

    @property
    def training(self) -> np.ndarray:
        return self.sentences[: self.work.words // self.SENTENCE]

    @cached_property
    def noise(self) -> np.ndarray:
        """How often each word is drawn as a negative: counts to the power of 0.75."""
        counts = np.bincount(self.training.reshape(-1), minlength=self.work.vocabulary)
        weights = counts**0.75
        return weights / weights.sum()

    def pairs(
        self, sentences: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return centers and contexts of all pairs in windows of random size, in order."""
        n, length = sentences.shape
        size = rng.integers(1, self.work.window + 1, (n, length))
        shifts = [s for s in range(-self.work.window, self.work.window + 1) if s]
        position = np.arange(length)
        inside = [(position + s >= 0) & (position + s < length) & (abs(s) <= size) for s in shifts]
        keep = np.stack(inside, -1)
        at = np.clip(position[:, None] + np.array(shifts), 0, length - 1)
        contexts = sentences[:, at][keep]
        centers = np.broadcast_to(sentences[:, :, None], keep.shape)[keep]
        return centers, contexts

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Draw negatives, from a table in which words stand as often as they are to be drawn."""
        return self._noise_table[rng.integers(0, len(self._noise_table), shape, np.int32)]

    @cached_property
    def _noise_table(self) -> np.ndarray:
        ends = np.round(np.cumsum(self.noise) * NOISE_TABLE).astype(np.int64)
        return np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0))

    def loss(self, vectors: np.ndarray, contexts: np.ndarray) -> float:
        """Return the mean loss of a pair and its negatives, on sentences held out."""
        rng = np.random.default_rng(7)
        held_out = self.sentences[len(self.training) :]
        centers, words = self.pairs(held_out, rng)
        wrong = self.draw(rng, (len(words), self.work.negatives))
        right = np.sum(vectors[centers] * contexts[words], axis=1)
        other = np.einsum("nd,nkd->nk", vectors[centers], contexts[wrong])
        return float(np.mean(np.logaddexp(0, -right) + np.logaddexp(0, other).sum(1)))
