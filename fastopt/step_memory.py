"""The memory of a step's temporaries, kept from step to step.

While `Optimizer.compute_gradients` and `Optimizer.minimize` run a loss and its backward pass, the
arrays that NumPy makes come from blocks that earlier steps have freed: memory that is fresh from
the system costs more to touch for the first time than the arithmetic on it. Outside a step NumPy
does as always; only the results of look-ups come from these blocks there too, since those of one
batch after the other are alike.
"""

from __future__ import annotations

import operator
from typing import SupportsIndex

from fastopt._kernels import _step_memory
from fastopt._kernels._step_memory import step_memory

__all__ = ["cached_bytes", "empty_cache", "set_cache_limit", "step_memory"]


def empty_cache() -> None:
    """Give the memory that is kept for the temporaries of the next step back to the system.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.empty_cache()
    >>> fo.cached_bytes()
    0
    """
    _step_memory.empty_cache()


def cached_bytes() -> int:
    """Return how many bytes are kept for the temporaries of the next step.

    Returns
    -------
    int
        Arrays in use don't count.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.cached_bytes() >= 0
    True
    """
    return _step_memory.kept_bytes()


def set_cache_limit(n_bytes: SupportsIndex) -> None:
    """Keep at most this much memory for the temporaries of the next step.

    Parameters
    ----------
    n_bytes : int
        Bytes; at first an eighth of the machine's memory, and at least 512 MiB. With 0 nothing is
        kept.

    Raises
    ------
    TypeError
        If `n_bytes` isn't an integer.
    ValueError
        If it is negative, or more than can be addressed.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.set_cache_limit(512 * 2**20)
    """
    try:
        number = operator.index(n_bytes)
    except TypeError:
        raise TypeError(
            f"n_bytes must be an integer, got {n_bytes!r} of type {type(n_bytes).__name__}"
        ) from None
    if not 0 <= number < 2**63:
        raise ValueError(f"n_bytes must be at least 0 and less than 2**63, got {number}")
    _step_memory.set_limit(number)
