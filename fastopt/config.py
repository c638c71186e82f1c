"""What this installation of fastopt runs on, for bug reports and for the curious."""

from __future__ import annotations

import platform
from typing import Any, Literal, overload

import numpy as np

from fastopt._kernels import _dispatch
from fastopt._version import __version__
from fastopt.threads import get_num_threads

__all__ = ["show_config"]


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...


@overload
def show_config(mode: Literal["dicts"]) -> dict[str, dict[str, Any]]: ...


def show_config(mode: str = "stdout") -> dict[str, dict[str, Any]] | None:
    """Show versions, the instruction-set level of the kernels, and the number of threads.

    Parameters
    ----------
    mode : {"stdout", "dicts"}
        "stdout" prints a readable form; "dicts" returns the same as a dictionary.

    Returns
    -------
    dict or None
        With "dicts", one dictionary for each section: "versions", "kernels", "platform".

    Raises
    ------
    ValueError
        If `mode` is neither of the two.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.show_config("dicts")["kernels"]["level"] in ("base", "v3", "v4")
    True
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f'mode must be "stdout" or "dicts", got {mode!r}')
    sections = _sections()
    if mode == "dicts":
        return sections
    for title, entries in sections.items():
        print(f"{title}:")
        for name, value in entries.items():
            shown = ", ".join(value) if isinstance(value, tuple) else value
            print(f"  {name}: {shown}")
    return None


def _sections() -> dict[str, dict[str, Any]]:
    return {
        "versions": {
            "fastopt": __version__,
            "numpy": np.__version__,
            "scipy": _installed_version("scipy"),
            "python": platform.python_version(),
        },
        "kernels": {
            "level": _dispatch.level(),
            "supported levels": _dispatch.supported_levels(),
            "threads": get_num_threads(),
            "compiler": _dispatch.compiler(),
        },
        "platform": {
            "machine": platform.machine(),
            "system": platform.platform(),
        },
    }


def _installed_version(distribution: str) -> str:
    # From the metadata: importing the package only to show its version would be slow. The module
    # that reads them is slow too, so it isn't imported with fastopt.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
