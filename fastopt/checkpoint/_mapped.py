"""`open`: look at a checkpoint without restoring it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fastopt.checkpoint._document import Document, OptimizerRecord
from fastopt.checkpoint._file import TensorFile

Array = np.ndarray[Any, Any]


class Checkpoint(Mapping[str, Array]):
    """The tensors of a checkpoint by name, as read-only arrays whose memory is the file's.

    Nothing is read before it is used. The arrays stay good when the file is replaced or deleted.

    Parameters
    ----------
    path : str or path
        A file that `save` has written, or any other safetensors file.

    Attributes
    ----------
    path : str
        The file.
    step : int or None
        The step at which it was saved.
    extra : object
        What the caller of `save` wanted to keep.
    versions : dict
        Of the libraries that wrote it.

    Raises
    ------
    ImportError
        Without the safetensors library (``pip install "fastopt[checkpoint]"``).
    OSError
        If the file cannot be read.
    ValueError
        If it is malformed.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = fo.Variable(np.ones((1000, 4), np.float32), name="table")
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = fo.checkpoint.save(f"{directory}/m.safetensors", variables=[table], step=7)
    ...     saved = fo.checkpoint.open(path)
    >>> saved.step, saved["table"][998:].sum()
    (7, np.float32(8.0))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = TensorFile(os.path.realpath(os.fspath(path)))
        document = self._file.document or Document(variables=list(self._file.entries))
        self.path = self._file.path
        self.step = document.step
        self.extra = document.extra
        self.versions = document.versions
        self._document = document

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of those tensors that are variables."""
        return tuple(self._document.variables)

    @property
    def optimizers(self) -> dict[str, OptimizerRecord]:
        """What is recorded of each optimizer: its class, hyperparameters and slots."""
        return self._document.optimizers

    def __getitem__(self, name: str) -> Array:
        return self._file.array(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.entries)

    def __len__(self) -> int:
        return len(self._file.entries)

    def __repr__(self) -> str:
        return f"<Checkpoint {self.path!r}: step {self.step}, {len(self)} tensors>"
