"""Programs before and after training, and files that are edited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

import fastopt as fo


def trained(make: Callable[[], Any], *names: str, shape: tuple[int, ...] = (4, 2)) -> Any:
    """Return variables and an optimizer that has made two steps with them."""
    variables = [
        fo.Variable(np.full(shape, i + 1.0, np.float32), name=n) for i, n in enumerate(names)
    ]
    optimizer = make()
    for step in (1.0, -2.0):
        pairs = [(np.full(shape, step * (i + 1)), var) for i, var in enumerate(variables)]
        optimizer.apply_gradients(pairs)
    return variables, optimizer


def fresh(make: Callable[[], Any], *names: str, shape: tuple[int, ...] = (4, 2)) -> Any:
    """Return the same in a graph of its own, before the first step."""
    with fo.Graph().as_default():
        return [fo.Variable(np.zeros(shape, np.float32), name=name) for name in names], make()


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the tensors of a file, and leave its description as it is."""
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata()
    tensors = safetensors.numpy.load_file(path)
    change(tensors)
    safetensors.numpy.save_file(tensors, path, metadata)
