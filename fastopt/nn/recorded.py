"""How the functions of this package are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastopt.autodiff.primitives import Primitive


def recorded(*, saves: tuple[int, ...] = (), saves_ans: bool = False) -> Callable[[Any], Primitive]:
    """Return a decorator that makes a function ``_name`` the primitive ``fastopt.nn.name``.

    Parameters
    ----------
    saves : tuple of int
        Positions of the arguments whose values the derivative reads; no others are kept in memory.
    saves_ans : bool
        Whether the derivative reads the result.
    """

    def made(function: Callable[..., Any]) -> Primitive:
        name = f"fastopt.nn.{function.__name__.removeprefix('_')}"
        return Primitive(function, name, saves=saves, saves_ans=saves_ans, builtin=True)

    return made
