"""`restore`."""

from __future__ import annotations

import os
from typing import Any

from fastopt.checkpoint._file import TensorFile
from fastopt.checkpoint._plan import Plan, Restored
from fastopt.checkpoint._state import State


def restore(
    path: str | os.PathLike[str],
    optimizers: Any = None,
    variables: Any = None,
    *,
    averages: Any = None,
    accumulators: Any = None,
    strict: bool = True,
) -> Restored:
    """Give variables and optimizers the state that was saved.

    Everything is checked before anything is changed. Things go by name: a variable by its own, a
    slot by its optimizer, its slot name and its variable. Slots and shadows that the program has
    not made yet are made here.

    Parameters
    ----------
    path : str or path
        What `save` has written, or any other safetensors file: of that only variables are restored.
    optimizers, variables, averages, accumulators
        As for `save`. Without `optimizers`, what the file holds of optimizers is left out; the same
        goes for `averages` and `accumulators`. What optimizers have collected for a step that is
        not done yet is replaced by what they had when the file was saved.
    strict : bool, default True
        Refuse a file that lacks something or holds something that nobody has asked for, or whose
        optimizers are of other classes. With False, what there is on both sides is restored. State
        that the file lacks begins with its initial value if its variable was restored, and is left
        alone like the variable if not.

    Returns
    -------
    Restored
        What was done, and what the caller of `save` had added.

    Raises
    ------
    ImportError
        Without the safetensors library (``pip install "fastopt[checkpoint]"``).
    TypeError
        If something is not of the type its place is for.
    ValueError
        If the file is malformed, or doesn't fit. The message lists everything that is missing,
        unexpected, or of another shape or dtype. The latter is an error without `strict` too:
        nothing is cast or broadcast.
    OSError
        If the file cannot be read.

    Notes
    -----
    Tensors are mapped and copied from there into the memory that variables have, so that restoring
    takes no other memory. A table that is larger than memory is restored into a variable whose
    memory is itself mapped: ``Variable(np.memmap(...), copy=False)``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fastopt as fo
    >>> def program():
    ...     w = fo.Variable(np.array([1.0, 2.0]), name="w")
    ...     return w, fo.AdamOptimizer(0.5)
    >>> with tempfile.TemporaryDirectory() as directory, fo.Graph().as_default():
    ...     w, opt = program()
    ...     done = opt.minimize(lambda: np.sum(w * w))
    ...     path = fo.checkpoint.save(f"{directory}/model.safetensors", opt)
    ...     with fo.Graph().as_default():  # as in a new process
    ...         w, opt = program()
    ...         restored = fo.checkpoint.restore(path, opt)
    >>> restored.variables, restored.state
    (('w',), ('w/Adam', 'w/Adam_1', 'beta1_power', 'beta2_power'))
    >>> w.numpy().round(6)
    array([0.5, 1.5])
    """
    file = TensorFile(os.path.realpath(os.fspath(path)))
    state = State(optimizers, variables, averages, accumulators)
    with state.locked() as stack:
        plan = Plan(file, state, strict)
        plan.variables()
        if optimizers is not None:
            stack.enter_context(plan.making_slots())
            plan.optimizers()
            plan.loss_scales()
            plan.collected()
        plan.averages()
        plan.accumulators()
        plan.require_fit(optimizers is not None, averages is not None, accumulators is not None)
        plan.carry_out()
    return plan.report()
