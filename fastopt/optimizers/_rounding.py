"""Where the random numbers of stochastic rounding come from (see `fastopt.stochastic_rounding`)."""

from __future__ import annotations

import zlib

from fastopt.variable import Variable

_MASK = 2**64 - 1


def key_of_call(seed: int, call: int) -> int:
    """Return 32 bits that seem random, by the finaliser of SplitMix64."""
    x = ((seed << 32) + call + 1) * 0x9E3779B97F4A7C15 & _MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return (x ^ x >> 31) >> 32


def key_of_variable(var: Variable) -> int:
    """Return what tells one variable from another, after a restart too."""
    return zlib.crc32(var.name.encode())
