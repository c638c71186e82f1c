"""Logistic regression with FTRL on rows of a scipy.sparse matrix.

100,000 possible features, 39 of them in a row, 50 of them useful. The gradient of the weights lists
only the features that occur in the batch, and the L1 term sets the weights of useless ones to
exactly zero.
"""

import numpy as np
import scipy.sparse

import fastopt as fo
from fastopt.metrics import log_loss, roc_auc_score

ROWS, FEATURES, PER_ROW, USEFUL, BATCH = 20_000, 100_000, 39, 50, 500


def make_data(seed: int) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Return random one-hot rows, in which low feature numbers are frequent, and labels."""
    rng = np.random.default_rng(seed)
    columns = (FEATURES * rng.random((ROWS, PER_ROW)) ** 8).astype(np.int64)
    truth = np.zeros(FEATURES)
    truth[:USEFUL] = np.random.default_rng(1).normal(0, 1.0, USEFUL)
    matrix = scipy.sparse.csr_array(
        (
            np.ones(ROWS * PER_ROW, np.float32),
            columns.reshape(-1),
            np.arange(0, ROWS * PER_ROW + 1, PER_ROW),
        ),
        shape=(ROWS, FEATURES),
    )
    chance = 1 / (1 + np.exp(-(matrix @ truth)))
    return matrix, (rng.random(ROWS) < chance).astype(np.float32)


def main() -> float:
    """Train on one set of rows and return the area under the curve on another."""
    rows, labels = make_data(seed=2)
    test_rows, test_labels = make_data(seed=3)
    w = fo.Variable(np.zeros(FEATURES, np.float32), name="w")
    optimizer = fo.FtrlOptimizer(0.1, l1_regularization_strength=0.01)
    for epoch in range(3):
        touched = 0
        for start in range(0, ROWS, BATCH):
            batch, truth = rows[start : start + BATCH], labels[start : start + BATCH]

            def loss(batch=batch, truth=truth):
                logits = batch @ w  # a scipy.sparse matrix times a variable
                return np.mean(fo.nn.sigmoid_cross_entropy_with_logits(labels=truth, logits=logits))

            touched += optimizer.minimize(loss, var_list=[w]).sparse_rows
        chance = 1 / (1 + np.exp(-(test_rows @ w.value)))
        print(
            f"epoch {epoch + 1}: log-loss {log_loss(test_labels, chance):.4f},"
            f" AUC {roc_auc_score(test_labels, chance):.4f},"
            f" {touched // (ROWS // BATCH)} of {FEATURES} weights touched a step"
        )
    kept = np.flatnonzero(w.value)
    print(f"{len(kept)} weights are not zero, {np.sum(kept < USEFUL)} of the {USEFUL} useful ones")
    return roc_auc_score(test_labels, chance)


if __name__ == "__main__":
    main()
