"""`numpy.einsum`: any number of operands, ellipses, repeated and summed-out indices."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastopt.autodiff.fitting import unbroadcast
from fastopt.autodiff.numpy_vjps._define import define, handle
from fastopt.autodiff.primitives import defvjp_argnums
from fastopt.autodiff.tensor import Differentiable


def explicit(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, without ellipses.

    Parameters
    ----------
    subscripts : str
        As `numpy.einsum` takes them, with or without ``->``.
    ranks : sequence of int
        The number of axes of each operand.

    Returns
    -------
    list of str, str
        One letter for each axis. That the subscripts fit the operands is taken for granted.
    """
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    unused = [c for c in string.ascii_letters if c not in text]
    widths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    widest = max(widths)
    # Broadcast axes are aligned at the right.
    ellipsis = "".join(unused[:widest])
    full = [
        term.replace("...", ellipsis[widest - width :])
        for term, width in zip(terms, widths, strict=True)
    ]
    if arrow:
        return full, right.replace("...", ellipsis)
    letters = left.replace(",", "").replace("...", "")
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return full, ellipsis + "".join(once)


def _einsum(subscripts: str, *operands: Any, **kwargs: Any) -> Any:
    return np.einsum(subscripts, *operands, **kwargs)


def _einsum_all(argnums: Sequence[int], ans: Any, args: Sequence[Any], kwargs: Any) -> Any:
    subscripts, operands = args[0], args[1:]
    terms, result = explicit(subscripts, [x.ndim for x in operands])
    lengths: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            lengths[letter] = max(n, lengths.get(letter, 1)) if n else 0

    def vjp(g: Any) -> list[Any]:
        return [_one(i - 1, g) for i in argnums]

    def _one(i: int, g: Any) -> Any:
        x, term = operands[i], terms[i]
        letters = "".join(dict.fromkeys(term))
        others = [j for j in range(len(operands)) if j != i]
        inputs = [terms[j] for j in others] + [result]
        arrays = [operands[j] for j in others] + [g]
        present = "".join(c for c in letters if any(c in t for t in inputs))
        part = np.einsum(f"{','.join(inputs)}->{present}", *arrays, optimize=len(arrays) > 1)
        # An index of x that nothing else has was summed out: every element gets the same gradient.
        full = [lengths[c] for c in letters]
        part = np.reshape(
            part, [part.shape[present.index(c)] if c in present else 1 for c in letters]
        )
        sizes = [x.shape[term.index(c)] for c in letters]
        part = unbroadcast(
            np.broadcast_to(part, np.broadcast_shapes(part.shape, tuple(full))), tuple(sizes)
        )
        if len(letters) == len(term):
            return part
        # A repeated index took a diagonal.
        total = np.zeros(x.shape, part.dtype)
        np.einsum(f"{term}->{letters}", total)[...] = part
        return total

    return vjp


_summed = define(_einsum, name="numpy.einsum", register=False, holomorphic=True)
defvjp_argnums(_summed, _einsum_all)


@handle(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """As `numpy.einsum`, with subscripts as a string or as lists."""
    if out is not None:
        kwargs["out"] = out
    if isinstance(operands[0], str):
        subscripts, items = operands[0], tuple(operands[1:])
    else:
        subscripts, items = _from_lists(operands)
    arrays = [x if isinstance(x, Differentiable) else np.asarray(x) for x in items]
    return _summed(subscripts, *arrays, optimize=optimize, **kwargs)


def _from_lists(operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Turn ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` into subscripts and operands."""
    pairs, rest = divmod(len(operands), 2)
    items = operands[: 2 * pairs : 2]

    def text(labels: Any) -> str:
        return "".join("..." if c is Ellipsis else string.ascii_letters[c] for c in labels)

    subscripts = ",".join(text(labels) for labels in operands[1 : 2 * pairs : 2])
    return (f"{subscripts}->{text(operands[-1])}" if rest else subscripts), items
