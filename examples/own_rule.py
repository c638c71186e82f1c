"""An update rule of your own: subclass `Optimizer` and say what the step of one variable is.

The rule is AddSign (Bello et al., 2017, *Neural Optimizer Search with Reinforcement Learning*): a
gradient that agrees in sign with its running mean m counts double, one that disagrees not at all.
"""

import numpy as np

import fastopt as fo


class AddSignOptimizer(fo.Optimizer):
    """m <- beta * m + (1 - beta) * g;  w <- w - learning_rate * (1 + sign(g) * sign(m)) * g."""

    def __init__(self, learning_rate, beta=0.9, use_locking=False, name="AddSign"):
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._beta = beta

    def _create_slots(self, var_list):
        for var in var_list:
            self._zeros_slot(var, "m", self.get_name())

    def _prepare(self):
        self._rate = self._call_if_callable(self._learning_rate)  # a number or a function

    def _apply_dense(self, grad, var):
        m = self.get_slot(var, "m")
        m.assign(self._beta * m.value + (1 - self._beta) * grad)
        return var.assign_sub(self._rate * (1 + np.sign(grad) * np.sign(m.value)) * grad)

    def _apply_sparse(self, grad, var):
        # Repeated rows have been summed: each row of `grad.indices` comes once.
        rows, g = grad.indices, grad.values
        m, w = self.get_slot(var, "m").numpy(), var.numpy()
        m[rows] = self._beta * m[rows] + (1 - self._beta) * g
        w[rows] -= self._rate * (1 + np.sign(g) * np.sign(m[rows])) * g
        self.get_slot(var, "m").assign(m)
        return var.assign(w)


def main() -> float:
    """Fit a small table and a vector to each other; return the last loss."""
    rng = np.random.default_rng(0)
    table = fo.Variable(rng.normal(0, 1, (6, 3)), name="table")
    w = fo.Variable(np.ones(3), name="w")
    target = np.array([1.0, -2.0, 0.5, 0.5])

    def loss():
        return np.mean((fo.embedding_lookup(table, [0, 2, 4, 4]) @ w - target) ** 2)

    optimizer = AddSignOptimizer(0.02)
    for step in range(1, 101):
        optimizer.minimize(loss)
        if step % 25 == 0:
            print(f"step {step}: loss {float(loss()):.6f}")
    return float(loss())


if __name__ == "__main__":
    main()
