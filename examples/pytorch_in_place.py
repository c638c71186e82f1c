"""Train a PyTorch module's own memory: PyTorch computes the gradients, fastopt applies them.

The embedding is declared with ``sparse=True``, so its gradient is a sparse tensor, and only the
rows that a batch looked up are read and written.
"""

import numpy as np
import torch

import fastopt as fo

ROWS, WIDTH, BATCH, STEPS = 10_000, 8, 256, 300


def main() -> float:
    """Train, and return the last loss."""
    torch.manual_seed(0)
    module = torch.nn.ModuleDict(
        {
            "table": torch.nn.Embedding(ROWS, WIDTH, sparse=True),
            "linear": torch.nn.Linear(2 * WIDTH, 1),
        }
    )
    variables = {
        name: fo.Variable(parameter.detach(), copy=False, name=name)
        for name, parameter in module.named_parameters()
    }
    optimizer = fo.LazyAdamOptimizer(0.02)  # Adam that touches only the rows it is given

    rng = np.random.default_rng(0)
    for step in range(1, STEPS + 1):
        ids = torch.from_numpy(rng.integers(0, 100, (BATCH, 2)))
        target = (ids[:, 0] > ids[:, 1]).float()
        logits = module["linear"](module["table"](ids).flatten(1))[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target)
        module.zero_grad()
        loss.backward()
        done = optimizer.apply_gradients(
            (parameter.grad, variables[name]) for name, parameter in module.named_parameters()
        )
        if step % 100 == 0:
            print(
                f"step {step}: loss {loss.item():.4f}, {done.sparse_rows} rows of the table and"
                f" {done.dense_parameters} dense parameters updated"
            )
    return loss.item()


if __name__ == "__main__":
    main()
