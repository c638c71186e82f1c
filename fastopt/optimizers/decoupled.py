"""`decouple`: decoupled weight decay for any rule."""

from __future__ import annotations

from typing import Any, TypeVar

from fastopt._arrays import shown
from fastopt._validate import Flag
from fastopt.optimizers._decay import WEIGHT_DECAY, Decay
from fastopt.optimizers._kernel_optimizer import KernelOptimizer

T = TypeVar("T", bound=KernelOptimizer)


def decouple(
    optimizer: T,
    weight_decay: Any,
    *,
    times_learning_rate: bool = False,
    listed_rows_only: bool = False,
) -> T:
    """Give an optimizer decoupled weight decay, whatever its rule.

    From now on a step of each variable begins with::

        w = w - weight_decay * w                     or, with times_learning_rate,
        w = w - weight_decay * learning_rate * w

    The rule's own update follows. Gradient and slots know nothing of the decay: that is how it
    differs from an L2 penalty in the loss [1]_.

    With a sparse gradient every row of its variable decays, also rows that the gradient doesn't
    list. A step costs no more for that: those rows decay when they are next listed or read, by what
    was left of them in all steps they missed. `listed_rows_only` lets only the listed rows decay,
    each once: another algorithm.

    Parameters
    ----------
    optimizer : KernelOptimizer
        One of this package's optimizers that has no `weight_decay` of its own. It is changed.
    weight_decay : float, callable, Variable or array_like scalar
        How much of a weight decays in a step, not negative. A callable is called, and anything but
        a plain number is read, once in every step. ``optimizer.configure(var, weight_decay=0.0)``
        leaves a variable out.
    times_learning_rate : bool
        Multiply with the learning rate, as PyTorch and Keras do. TensorFlow v1 doesn't.
    listed_rows_only : bool
        Let only the rows decay that a sparse gradient lists, as TensorFlow v1 does.

    Returns
    -------
    KernelOptimizer
        The optimizer itself.

    Raises
    ------
    TypeError
        If the optimizer is none of this package, or a value is not a number or a bool.
    ValueError
        If `weight_decay` is negative or not finite, or the optimizer has a weight decay already.

    References
    ----------
    .. [1] I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.ones((3, 1)), name="table")
    >>> opt = fo.decouple(fo.MomentumOptimizer(0.5, 0.9), weight_decay=0.25)
    >>> done = opt.apply_gradients([(fo.IndexedSlices(np.ones((1, 1)), [0]), table)])
    >>> table.numpy().ravel()
    array([0.25, 0.75, 0.75])
    """
    if not isinstance(optimizer, KernelOptimizer):
        raise TypeError(
            f"decouple: optimizer must be one of fastopt's own rules, got {shown(optimizer)}"
        )
    if "weight_decay" in optimizer._constraints:
        raise ValueError(f"decouple: {optimizer!r} has a weight_decay already")
    flag = Flag()
    decay = Decay(
        flag.accept("decouple", "times_learning_rate", times_learning_rate),
        flag.accept("decouple", "listed_rows_only", listed_rows_only),
    )
    optimizer._let_decay(decay, WEIGHT_DECAY.accept("decouple", "weight_decay", weight_decay))
    return optimizer
