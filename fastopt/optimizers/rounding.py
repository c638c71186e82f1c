"""`stochastic_rounding`: 16-bit weights that are trained without a float32 master."""

from __future__ import annotations

import operator
from typing import TypeVar

from fastopt._arrays import shown
from fastopt.optimizers._kernel_optimizer import KernelOptimizer

T = TypeVar("T", bound=KernelOptimizer)


def stochastic_rounding(optimizer: T, seed: int = 0) -> T:
    """Train 16-bit variables without a float32 master, rounding up or down at random.

    By default a float16 or bfloat16 variable has a master, four bytes a parameter which hold what
    16 bits don't. Without one, an update is computed in float32 from the 16-bit weight, and rounded
    to one of its two neighbours in 16 bits, with a probability that makes the expectation the
    number itself [1]_: an update that is much smaller than the distance of the neighbours is not
    lost, but happens now and then. Weights then take a third of the memory.

    Slots stay float32, as do variables of 32 and 64 bits.

    Parameters
    ----------
    optimizer : KernelOptimizer
        One of this package's optimizers that has not updated a 16-bit variable yet. It is changed.
    seed : int
        Where the random numbers begin, from 0 to 2**32 - 1. They depend on it, on the number of
        calls, and on the name of the variable and the place in it; so equal programs, with however
        many threads, on whatever processor, give equal bits. The number of calls is the variable
        "rounding_step" of the optimizer, which checkpoints hold.

    Returns
    -------
    KernelOptimizer
        The optimizer itself.

    Raises
    ------
    TypeError
        If the optimizer is none of this package, or `seed` is no integer.
    ValueError
        If `seed` is out of bounds, or the optimizer has masters already.

    Notes
    -----
    What rows without a gradient miss can't be made up for later in 16 bits. Rules that move such
    rows (`AdamOptimizer`, `AdamWOptimizer`) pass over the whole table in each sparse step. A
    `ValueError` is raised by `apply_gradients`, before anything is changed, for a sparse gradient
    of a 16-bit variable if all its rows decay under a rule that updates listed rows only
    (`decouple` without ``listed_rows_only``), or only slots fade in rows that are not listed
    (`NadamOptimizer`). `LazyAdamOptimizer` and other rules that update listed rows only cost what
    the gradient lists.

    References
    ----------
    .. [1] S. Gupta et al., "Deep learning with limited numerical precision", ICML 2015.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.ones((1, 1000), np.float16), name="table")
    >>> opt = fo.stochastic_rounding(fo.GradientDescentOptimizer(1e-5))
    >>> gradient = fo.IndexedSlices(np.ones((1, 1000), np.float16), [0])
    >>> for _ in range(100):
    ...     done = opt.apply_gradients([(gradient, table)])
    >>> round(float(np.mean(table.numpy(), dtype=np.float64)), 4), opt.get_slot_names()
    (0.999, [])
    """
    if not isinstance(optimizer, KernelOptimizer):
        raise TypeError(
            "stochastic_rounding: optimizer must be one of fastopt's own rules, got"
            f" {shown(optimizer)}"
        )
    if isinstance(seed, bool):
        raise TypeError(f"stochastic_rounding: seed must be an integer, got {seed!r}")
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(
            f"stochastic_rounding: seed must be an integer, got {shown(seed)}"
        ) from None
    if not 0 <= number < 2**32:
        raise ValueError(f"stochastic_rounding: seed must be from 0 to 2**32 - 1, got {number}")
    optimizer._round_stochastically(number)
    return optimizer
