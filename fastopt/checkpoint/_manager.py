"""A directory of checkpoints: which is the latest, how many are kept, when to save."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

from fastopt._arrays import shown
from fastopt.checkpoint._plan import Restored
from fastopt.checkpoint._restore import restore
from fastopt.checkpoint._save import save
from fastopt.global_step import get_global_step
from fastopt.variable import Variable

_SUFFIX = ".safetensors"


def latest(directory: str | os.PathLike[str], checkpoint_name: str = "ckpt") -> str | None:
    """Return the checkpoint of the highest step in a directory.

    Parameters
    ----------
    directory : str or path
        Where a `CheckpointManager` saves. It need not exist.
    checkpoint_name : str
        What the names of the files begin with.

    Returns
    -------
    str or None
        The path, ``None`` if there is no checkpoint. Files that a save which was killed has left
        are none.

    Examples
    --------
    >>> import fastopt as fo
    >>> fo.checkpoint.latest("no/such/directory") is None
    True
    """
    found = _numbered(os.fspath(directory), checkpoint_name)
    return found[max(found)] if found else None


class CheckpointManager:
    """Saves checkpoints into a directory, at the steps wanted, and deletes old ones.

    The files are named ``ckpt-1000.safetensors``, after the step. One manager at a time may save
    under one name into a directory.

    Parameters
    ----------
    directory : str or path
        Made if it is not there.
    optimizers, variables, averages, accumulators
        As for `save`.
    max_to_keep : int or None, default 5
        How many checkpoints of the highest steps are kept; ``None`` keeps all.
    checkpoint_interval : int, default 1
        `save` does nothing before so many steps have passed since the last checkpoint.
    step_counter : Variable, optional
        Where the step is read. Default: the global step of the default graph.
    checkpoint_name : str, default "ckpt"
        What the names of the files begin with.

    Raises
    ------
    TypeError
        If an argument is not of its type.
    ValueError
        If a number is less than 1, or the name is no name for a file.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import fastopt as fo
    >>> with fo.Graph().as_default(), tempfile.TemporaryDirectory() as directory:
    ...     w, step = fo.Variable(np.ones(3), name="w"), fo.create_global_step()
    ...     opt = fo.MomentumOptimizer(0.1, 0.9)
    ...     manager = fo.checkpoint.CheckpointManager(
    ...         directory, opt, max_to_keep=2, checkpoint_interval=10
    ...     )
    ...     restored = manager.restore_or_initialize()  # None: there is nothing yet
    ...     for _ in range(35):
    ...         done = opt.minimize(lambda: np.sum(w * w), global_step=step)
    ...         path = manager.save()
    ...     print([os.path.basename(path) for path in manager.checkpoints])
    ['ckpt-21.safetensors', 'ckpt-31.safetensors']
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        optimizers: Any = None,
        variables: Any = None,
        *,
        averages: Any = None,
        accumulators: Any = None,
        max_to_keep: int | None = 5,
        checkpoint_interval: int = 1,
        step_counter: Variable | None = None,
        checkpoint_name: str = "ckpt",
    ) -> None:
        if max_to_keep is not None:
            _require_count("max_to_keep", max_to_keep)
        _require_count("checkpoint_interval", checkpoint_interval)
        if step_counter is not None and not isinstance(step_counter, Variable):
            raise TypeError(f"step_counter must be a Variable or None, got {shown(step_counter)}")
        if not isinstance(checkpoint_name, str):
            raise TypeError(f"checkpoint_name must be a string, got {shown(checkpoint_name)}")
        if not checkpoint_name or os.path.basename(checkpoint_name) != checkpoint_name:
            raise ValueError(f"checkpoint_name must be the name of a file, got {checkpoint_name!r}")
        self._directory = os.fspath(directory)
        self._optimizers = optimizers
        self._variables = variables
        self._around = {"averages": averages, "accumulators": accumulators}
        self._max_to_keep = max_to_keep
        self._interval = checkpoint_interval
        self._counter = step_counter
        self._name = checkpoint_name
        self._last: int | None = None  # the step of the last checkpoint that this object knows of
        os.makedirs(self._directory, exist_ok=True)
        self._sweep()

    @property
    def directory(self) -> str:
        """Where the checkpoints are."""
        return self._directory

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the checkpoints there are, by rising step."""
        found = _numbered(self._directory, self._name)
        return [found[step] for step in sorted(found)]

    @property
    def latest_checkpoint(self) -> str | None:
        """The checkpoint of the highest step, ``None`` if there is none."""
        return latest(self._directory, self._name)

    def save(
        self,
        checkpoint_number: int | None = None,
        check_interval: bool = True,
        *,
        extra: Any = None,
    ) -> str | None:
        """Save, if it is time to, and delete what is too much.

        Parameters
        ----------
        checkpoint_number : int, optional
            Default: the step.
        check_interval : bool, default True
            Whether to do nothing if the last checkpoint is not long enough ago. False for the last
            one of a training, say.
        extra : object, optional
            As for :func:`fastopt.checkpoint.save`.

        Returns
        -------
        str or None
            The path, ``None`` if nothing was saved.

        Raises
        ------
        ValueError
            If there is neither a number nor a step counter.
        """
        step = self._step() if checkpoint_number is None else checkpoint_number
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ValueError(f"checkpoint_number must be an int >= 0, got {step!r}")
        if check_interval and self._last is not None and 0 <= step - self._last < self._interval:
            return None
        path = os.path.join(self._directory, f"{self._name}-{step}{_SUFFIX}")
        save(path, self._optimizers, self._variables, extra, step=step, **self._around)
        self._last = step
        self._prune(step)
        return path

    def restore_or_initialize(self, strict: bool = True) -> Restored | None:
        """Restore the latest checkpoint if there is one.

        Parameters
        ----------
        strict : bool
            As for :func:`fastopt.checkpoint.restore`.

        Returns
        -------
        Restored or None
            ``None`` if there is no checkpoint: everything is as the program has made it.
        """
        path = self.latest_checkpoint
        if path is None:
            return None
        done = restore(path, self._optimizers, self._variables, strict=strict, **self._around)
        self._last = _step_of(os.path.basename(path), self._name)
        return done

    def _step(self) -> int:
        counter = get_global_step() if self._counter is None else self._counter
        if counter is None:
            raise ValueError(
                "there is no global step in the default graph; pass step_counter or "
                "checkpoint_number"
            )
        return int(counter.value)

    def _prune(self, saved: int) -> None:
        if self._max_to_keep is None:
            return
        found = _numbered(self._directory, self._name)
        # What was just saved stays, even if the directory has checkpoints of later steps.
        others = sorted(step for step in found if step != saved)
        for step in others[: max(len(found) - self._max_to_keep, 0)]:
            os.unlink(found[step])

    def _sweep(self) -> None:
        """Delete what saves that were killed have left."""
        pattern = re.compile(
            rf"\.{re.escape(self._name)}-\d+{re.escape(_SUFFIX)}\.[0-9a-f]+\.tmp", re.A
        )
        for entry in os.scandir(self._directory):
            if pattern.fullmatch(entry.name):
                shutil.rmtree(entry.path, ignore_errors=True)


def _numbered(directory: str, name: str) -> dict[int, str]:
    """Return the checkpoints in a directory by their steps."""
    try:
        entries = os.listdir(directory)
    except FileNotFoundError:
        return {}
    found = ((_step_of(entry, name), entry) for entry in entries)
    return {step: os.path.join(directory, entry) for step, entry in found if step is not None}


def _step_of(entry: str, name: str) -> int | None:
    match = re.fullmatch(rf"{re.escape(name)}-(0|[1-9]\d*){re.escape(_SUFFIX)}", entry, re.A)
    return None if match is None else int(match.group(1))


def _require_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {shown(value)}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
