"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Any

from fastopt._validate import Flag
from fastopt.optimizers._decay import WEIGHT_DECAY, Decay
from fastopt.optimizers.adam import AdamOptimizer


class AdamWOptimizer(AdamOptimizer):
    """AdamW: Adam with decoupled weight decay [1]_.

    In call ``t``, counted from 1::

        w = w - weight_decay * w                     or, with times_learning_rate,
        w = w - weight_decay * learning_rate * w
        and then the update of AdamOptimizer

    The slots and powers are those of `AdamOptimizer`. The averages know nothing of the decay.

    With a sparse gradient every row moves and decays, also rows that the gradient doesn't list.
    `listed_rows_only` lets only the listed rows decay, each once, as TensorFlow's contributed class
    does; they still all move, as in Adam.

    Parameters
    ----------
    weight_decay : float, callable, Variable or array_like scalar
        How much of a weight decays in a step, not negative. ``configure(var, weight_decay=0.0)``
        leaves a variable out.
    learning_rate, beta1, beta2, epsilon, use_locking, name, sparse_updates, amsgrad, loss_scale
        See `AdamOptimizer`.
    times_learning_rate : bool
        Multiply the decay with the learning rate, as PyTorch and Keras do. TensorFlow v1 doesn't.
    listed_rows_only : bool
        Let only the rows decay that a sparse gradient lists, as TensorFlow v1 does.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number within its bounds.

    References
    ----------
    .. [1] I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 1.0]), name="w")
    >>> opt = fo.AdamWOptimizer(weight_decay=0.25, learning_rate=0.5)
    >>> done = opt.apply_gradients([(np.array([8.0, -0.125]), w)])
    >>> w.numpy().round(3)
    array([0.25, 1.25])
    """

    _constraints = {
        "weight_decay": WEIGHT_DECAY,
        **AdamOptimizer._constraints,
        "times_learning_rate": Flag(),
        "listed_rows_only": Flag(),
    }

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
        times_learning_rate: bool = False,
        listed_rows_only: bool = False,
        *,
        sparse_updates: str = "deferred",
        amsgrad: bool = False,
        loss_scale: Any = None,
    ) -> None:
        super(AdamOptimizer, self).__init__(
            use_locking,
            name,
            loss_scale,
            weight_decay=weight_decay,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            sparse_updates=sparse_updates,
            amsgrad=amsgrad,
            times_learning_rate=times_learning_rate,
            listed_rows_only=listed_rows_only,
        )
        self._look_at_options()
        kept = self._hyperparameters
        self._decay = Decay(kept["times_learning_rate"], kept["listed_rows_only"])
        self._look_through()
