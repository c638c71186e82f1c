"""Matrix factorisation: predict ratings as the product of a user's and an item's vector."""

import numpy as np

import fastopt as fo

USERS, ITEMS, RANK, RATINGS, BATCH = 2_000, 1_000, 4, 100_000, 1_000


def make_ratings(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return users, items and the ratings between them: a matrix of low rank plus noise."""
    user_vectors = rng.normal(0, 0.7, (USERS, RANK))
    item_vectors = rng.normal(0, 0.7, (ITEMS, RANK))
    users, items = rng.integers(0, USERS, RATINGS), rng.integers(0, ITEMS, RATINGS)
    exact = np.sum(user_vectors[users] * item_vectors[items], axis=1)
    return users, items, (3.5 + exact + rng.normal(0, 0.1, RATINGS)).astype(np.float32)


def main() -> float:
    """Train, and return the root mean squared error on ratings that were held out."""
    rng = np.random.default_rng(0)
    users, items, ratings = make_ratings(rng)
    held_out, order = np.arange(10_000), np.arange(10_000, RATINGS)

    def table(rows: int, name: str) -> fo.Variable:
        return fo.Variable(rng.normal(0, 0.1, (rows, RANK)).astype(np.float32), name=name)

    user_table, item_table = table(USERS, "users"), table(ITEMS, "items")
    mean = fo.Variable(np.float32(0), name="mean")
    step = fo.Variable(np.int64(0), trainable=False, name="global_step")
    # A hyperparameter may be a function without arguments, read at every step.
    optimizer = fo.AdagradOptimizer(lambda: 1.0 if int(step) < 400 else 0.1)

    def predict(rows: np.ndarray):
        return mean + fo.embedding_dot(user_table, users[rows], item_table, items[rows])

    def error(rows: np.ndarray):
        return np.sum((predict(rows) - ratings[rows]) ** 2)

    for epoch in range(8):
        rng.shuffle(order)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            optimizer.minimize(lambda rows=rows: error(rows), global_step=step)
        rmse = (float(error(held_out)) / len(held_out)) ** 0.5
        print(f"epoch {epoch + 1}: held-out error {rmse:.4f} (the noise alone is 0.1)")
    return rmse


if __name__ == "__main__":
    main()
