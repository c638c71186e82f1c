"""Adam, and its lazy form for sparse gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from fastopt._validate import Choice, Real
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot
from fastopt.schedules.base import at_step
from fastopt.variable import Variable


class AdamOptimizer(KernelOptimizer):
    """Adam: steps by running averages of the gradient and of its square [1]_.

    In call ``t``, counted from 1::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        lr_t = learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t)
        w = w - lr_t * m / (sqrt(v) + epsilon)

    Slots ``m`` and ``v``, from zeros. The powers of the betas are the variables ``beta1_power`` and
    ``beta2_power``, one pair for all variables of the optimizer: they count calls. They are
    float64, where TensorFlow keeps float32.

    Epsilon stands beside the uncorrected root, as in TensorFlow and in the paper's "epsilon hat".
    PyTorch and Keras' documentation have it beside the corrected root: to get theirs, multiply
    epsilon by ``sqrt(1 - beta2**t)`` with a callable.

    With a sparse gradient every row moves: rows that the gradient doesn't list have a gradient of
    zero, their averages decay, and the weights follow. That costs no more than the listed rows:
    what another row misses is made up for, in one go for many steps, when it is next listed or read
    (by a look-up, `Variable.numpy`, a checkpoint, in a slot, ...). The numbers are those of a pass
    over all rows in every step, to within rounding. `LazyAdamOptimizer` touches the listed rows
    only, and is another algorithm.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    beta1, beta2 : float, callable, Variable or array_like scalar
        How much of the averages stays in a step, in [0, 1). (TensorFlow accepts any number; beyond
        these bounds the correction is no number.) A callable is called once more when the powers
        are created.
    epsilon : float, callable, Variable or array_like scalar
        Keeps the denominator from zero; not negative.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    sparse_updates : {"deferred", "dense"}
        "dense" updates all rows in every step that has a sparse gradient, however few it lists.
        Keyword only.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number within its bounds, or `sparse_updates` is
        neither of the two.

    Notes
    -----
    A beta or epsilon that is another number in every step has all rows made up for in every step;
    a learning rate may change freely. Variables that share their memory (``copy=False``) or have a
    constraint are brought up to date at once, which is a pass over all rows.
    What a table takes in memory for this is 4 bytes a row.

    References
    ----------
    .. [1] D. P. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 1.0]), name="w")
    >>> opt = fo.AdamOptimizer(learning_rate=0.5)
    >>> done = opt.apply_gradients([(np.array([8.0, -0.125]), w)])
    >>> w.numpy().round(3)
    array([0.5, 1.5])
    >>> [var.name for var in opt.variables()]
    ['beta1_power', 'beta2_power', 'w/Adam', 'w/Adam_1']
    """

    _constraints = {
        "learning_rate": Real(),
        "beta1": Real(ge=0, lt=1),
        "beta2": Real(ge=0, lt=1),
        "epsilon": Real(ge=0),
        "sparse_updates": Choice(("deferred", "dense")),
    }
    _common = frozenset({"beta1", "beta2"})  # their powers are the optimizer's
    _slot_table = (Slot("m"), Slot("v"))
    _untouched: Literal["skip", "update", "defer"] = "defer"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        *,
        sparse_updates: str = "deferred",
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            sparse_updates=sparse_updates,
        )
        if sparse_updates == "dense":
            self._untouched = "update"

    def _rule(self) -> str:
        return "adam"

    def _make_transient(self) -> None:
        super()._make_transient()
        # The powers that were used last, and the graph they belong to: found without a look-up.
        self._known_powers: tuple[Graph, Variable, Variable] | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_known_powers"]
        return state

    def _create_slots(self, var_list: list[Variable]) -> None:
        first = min(var_list, key=lambda var: var.name)
        for beta in ("beta1", "beta2"):
            self._create_non_slot_variable(partial(self._read_now, beta), f"{beta}_power", first)
        self._known_powers = None
        super()._create_slots(var_list)

    def _read_now(self, hyperparameter: str) -> np.float64:
        kept = at_step(self._hyperparameters[hyperparameter], self._call.step)
        read = self._constraints[hyperparameter].read
        return np.float64(read(type(self).__name__, hyperparameter, kept))

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        power1, power2 = self._powers(graph)
        correction = math.sqrt(1.0 - power2._storage.item()) / (1.0 - power1._storage.item())
        return (
            values["learning_rate"] * correction,
            1.0 - values["beta1"],
            1.0 - values["beta2"],
            values["epsilon"],
        )

    def _advance(self, values: Mapping[str, Any], graph: Graph) -> None:
        power1, power2 = self._powers(graph)
        with power1._lock:  # each call counts, however many threads apply at once
            power1._storage[()] = power1._storage.item() * values["beta1"]
            power2._storage[()] = power2._storage.item() * values["beta2"]

    def _powers(self, graph: Graph) -> tuple[Variable, Variable]:
        known = self._known_powers
        if known is None or known[0] is not graph:
            power1 = self._get_non_slot_variable("beta1_power", graph)
            power2 = self._get_non_slot_variable("beta2_power", graph)
            assert power1 is not None and power2 is not None
            self._known_powers = known = graph, power1, power2
        return known[1], known[2]


class LazyAdamOptimizer(AdamOptimizer):
    """Adam that touches only the rows which a sparse gradient lists.

    For dense gradients it is `AdamOptimizer`. With a sparse gradient, rows that are not listed stay
    as they are: their averages don't decay, their weights don't move. This is a different
    algorithm: a row that is seen seldom keeps old averages, while the bias correction counts every
    call. An empty gradient advances only the powers.

    Parameters
    ----------
    learning_rate, beta1, beta2, epsilon, use_locking, name, loss_scale
        See `AdamOptimizer`.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.ones((3, 1)), name="w")
    >>> opt = fo.LazyAdamOptimizer(learning_rate=0.5)
    >>> for row in (0, 2):
    ...     done = opt.apply_gradients([(fo.IndexedSlices(np.ones((1, 1)), [row]), w)])
    >>> w.numpy().ravel().round(6)
    array([0.5     , 1.      , 0.627932])
    """

    _constraints = {
        name: AdamOptimizer._constraints[name]
        for name in ("learning_rate", "beta1", "beta2", "epsilon")
    }
    _untouched = "skip"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        *,
        loss_scale: Any = None,
    ) -> None:
        super(AdamOptimizer, self).__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
        )
