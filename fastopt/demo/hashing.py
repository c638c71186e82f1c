"""Stable hashes: the same value goes to the same row in every process, on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def hash_strings(texts: Iterable[str]) -> Hashes:
    """Return 64-bit hashes; Python's own `hash` of a string differs from process to process."""
    digests = [
        hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def mix(hashes: Hashes) -> Hashes:
    """Scramble 64 bits so that each bit depends on all others (the finalizer of SplitMix64).

    Steele, Lea and Flood (2014), *Fast Splittable Pseudorandom Number Generators*, figure 17.
    """
    with np.errstate(over="ignore"):
        z = hashes + _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def cross(left: Hashes, right: Hashes) -> Hashes:
    """Hash pairs; (a, b) and (b, a) differ."""
    return mix(mix(left) ^ right)


def bucket(hashes: Hashes, buckets: int) -> NDArray[np.int64]:
    """Return rows in ``range(buckets)``."""
    return (hashes % np.uint64(buckets)).astype(np.int64)
