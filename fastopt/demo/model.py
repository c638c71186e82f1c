"""The wide-and-deep model: two optimizers, one loss, dense and sparse gradients together.

Cheng et al. (2016), *Wide & Deep Learning for Recommender Systems*,
https://arxiv.org/abs/1606.07792.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastopt as fo

from .features import Bags, Examples, Layout


def pooled_rows(table: fo.Variable, bags: Bags, combiner: str) -> Any:
    """Look up the rows of each bag and add them up."""
    ids = fo.RaggedIds(bags.ids, bags.offsets)
    return fo.embedding_lookup_sparse(table, ids, bags.weights, combiner=combiner)


class WideAndDeep:
    """A linear model over many sparse features beside a small network over embeddings.

    The wide weights are trained by FTRL, which makes the weights of useless features exactly zero;
    the embeddings and the network by Adagrad, which gives rare rows larger steps.

    Parameters
    ----------
    layout : Layout
        The sizes of the examples.
    embedding_dim : int
        Width of the embedding table.
    hidden : sequence of int
        Widths of the network's hidden layers.
    seed : int
        Seed of the initial values.
    """

    def __init__(
        self,
        layout: Layout,
        embedding_dim: int = 8,
        hidden: Sequence[int] = (64, 32),
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)

        def normal(rows: int, columns: int, deviation: float) -> NDArray[np.float32]:
            return rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(deviation)

        self.wide = fo.Variable(np.zeros((layout.wide_rows, 1), np.float32), name="wide")
        self.table = fo.Variable(normal(layout.table_rows, embedding_dim, 0.05), name="embeddings")
        self.layers: list[tuple[fo.Variable, fo.Variable]] = []
        inputs = (layout.columns + layout.has_bags) * embedding_dim + layout.numeric
        for k, outputs in enumerate([*hidden, 1]):
            weights = fo.Variable(normal(inputs, outputs, inputs**-0.5), name=f"layer{k}/weights")
            biases = fo.Variable(np.zeros(outputs, np.float32), name=f"layer{k}/biases")
            self.layers.append((weights, biases))
            inputs = outputs
        self.step = fo.Variable(np.int64(0), trainable=False, name="global_step")
        self.ftrl = fo.FtrlOptimizer(0.05, l1_regularization_strength=1e-3)
        self.adagrad = fo.AdagradOptimizer(0.05)

    def logits(self, batch: Examples) -> Any:
        """Return the log-odds of label 1, a tensor (in eager mode an array) of shape (n,)."""
        wide = pooled_rows(self.wide, batch.wide, "sum")
        parts: list[Any] = [batch.numeric]
        if batch.ids.shape[1]:
            parts.append(fo.embedding_lookup(self.table, batch.ids).reshape(len(batch), -1))
        if batch.bags is not None:
            parts.append(pooled_rows(self.table, batch.bags, "sqrtn"))
        deep: Any = parts  # side by side, without being copied into one array
        for weights, biases in self.layers[:-1]:
            deep = fo.nn.linear(deep, weights, biases, fo.nn.relu)
        return (wide + fo.nn.linear(deep, *self.layers[-1]))[:, 0]

    def train_step(self, batch: Examples) -> tuple[float, fo.Operation, fo.Operation]:
        """Take one step; return the loss and what each optimizer did."""
        value = np.nan

        def mean_loss() -> Any:
            nonlocal value
            logits = self.logits(batch)
            loss = np.mean(
                fo.nn.sigmoid_cross_entropy_with_logits(labels=batch.label, logits=logits)
            )
            value = float(loss)
            return loss

        network = [variable for layer in self.layers for variable in layer]
        wide, *deep = self.adagrad.compute_gradients(
            mean_loss, var_list=[self.wide, self.table, *network]
        )
        wide_done = self.ftrl.apply_gradients([wide])
        deep_done = self.adagrad.apply_gradients(deep, global_step=self.step)
        return value, wide_done, deep_done

    def predict(self, examples: Examples, batch_size: int = 4096) -> NDArray[np.float64]:
        """Return the probability of label 1 for each example."""
        starts = range(0, len(examples), batch_size)
        batches = np.split(np.arange(len(examples)), starts[1:])
        with fo.eager_mode():  # nothing is recorded for a backward pass
            logits = [self.logits(examples.take(rows)) for rows in batches]
        # exp of a large number is inf and 1 / inf is the right answer.
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(-np.concatenate(logits).astype(np.float64)))
