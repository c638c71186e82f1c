"""What the state of an optimizer begins with, found out without touching what it has."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from fastopt.graph import Graph
from fastopt.optimizer import Optimizer
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]


class Initial:
    """What the state of an optimizer begins with: that of a copy of a variable in its own graph."""

    def __init__(self, optimizer: Optimizer, var: Variable, step: int | None) -> None:
        self.slots: dict[str, Array] = {}
        self.non_slots: dict[str, Array] = {}
        call = optimizer._call
        with contextlib.ExitStack() as stack:
            stack.callback(call.forget)
            call.step = step or 0
            with Graph().as_default():
                copy = Variable(var.value, name=var.name)
            journal = stack.enter_context(optimizer._creating([copy]))
            optimizer._create_slots([copy])
            for name, shelf in optimizer._slots.items():
                if copy in shelf:
                    self.slots[name] = shelf[copy].numpy()
            for name, made in optimizer._non_slots.get(copy.graph, {}).items():
                self.non_slots[name] = made.numpy()
            journal.undo()
            optimizer._non_slots.pop(copy.graph, None)
