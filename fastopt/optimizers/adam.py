"""Adam, and its lazy form for sparse gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from fastopt._validate import Choice, Flag
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import Scalars, Slot
from fastopt.optimizers._powers import BETAS, PowersOptimizer


class AdamOptimizer(PowersOptimizer):
    """Adam: steps by running averages of the gradient and of its square [1]_.

    In call ``t``, counted from 1::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        lr_t = learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t)
        w = w - lr_t * m / (sqrt(v) + epsilon)

    With `amsgrad` the root is that of the largest ``v`` so far, which is kept in the slot ``vhat``
    [2]_.

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
    amsgrad : bool
        Divide by the root of the largest ``v`` so far. Keyword only.
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
    .. [2] S. J. Reddi, S. Kale, S. Kumar, "On the convergence of Adam and beyond", ICLR 2018.

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
        **BETAS,
        "sparse_updates": Choice(("deferred", "dense")),
        "amsgrad": Flag(),
    }
    _slot_table: tuple[Slot, ...] = (Slot("m"), Slot("v"))
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
        amsgrad: bool = False,
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
            amsgrad=amsgrad,
        )
        self._look_at_options()

    def _look_at_options(self) -> None:
        """Settle what depends on options that don't change."""
        if self._hyperparameters["sparse_updates"] == "dense":
            self._untouched = "update"
        if self._hyperparameters["amsgrad"]:
            self._slot_table = (*self._slot_table, Slot("vhat"))

    def _rule(self) -> str:
        return "amsgrad" if self._hyperparameters.get("amsgrad") else "adam"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        power1, power2 = self._powers(graph)
        correction = math.sqrt(1.0 - power2) / (1.0 - power1)
        return (
            values["learning_rate"] * correction,
            1.0 - values["beta1"],
            1.0 - values["beta2"],
            values["epsilon"],
        )


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

    _constraints = BETAS
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
