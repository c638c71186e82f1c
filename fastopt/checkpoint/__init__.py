"""Checkpoints: save the state of a training and go on with it later, to the same bits.

A checkpoint is one file in the safetensors format; the library is an extra, ``pip install
fastopt[checkpoint]``. See :func:`save`, :func:`restore`, :class:`CheckpointManager`.
"""

from fastopt.checkpoint._manager import CheckpointManager, latest
from fastopt.checkpoint._mapped import Checkpoint
from fastopt.checkpoint._plan import Restored
from fastopt.checkpoint._restore import restore
from fastopt.checkpoint._save import save

open = Checkpoint

__all__ = ["Checkpoint", "CheckpointManager", "Restored", "latest", "open", "restore", "save"]
