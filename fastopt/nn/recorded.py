"""How the functions of this package are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastopt.autodiff.primitives import Primitive


def recorded(function: Callable[..., Any]) -> Primitive:
    """Make a function ``_name`` of plain arrays the recorded function ``fastopt.nn.name``.

    Its derivatives must return arrays of their own, or views of the gradient that they are given.
    """
    name = f"fastopt.nn.{function.__name__.removeprefix('_')}"
    return Primitive(function, name, builtin=True)
