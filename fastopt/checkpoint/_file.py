"""The file: a safetensors file whose metadata holds one JSON document of ours.

The library checks a header when it opens a file (sizes, dtypes, that tensors cover the file without
holes or overlaps), and writes arrays from where they lie, without a copy. What it doesn't do is
done here: map the tensors, and replace a file in such a way that a reader, or a machine that
crashes, sees the old file or the new one and nothing between.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastopt.checkpoint._document import Document, document_of

Array = np.ndarray[Any, Any]

KEY = "fastopt"  # of the document in the metadata

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
_LENGTH_BYTES = 8  # of the number a file begins with, the length of the header
_MOST_TRIES = 100


def require_safetensors() -> Any:
    """Return the library, which is an extra."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "fastopt.checkpoint needs the safetensors library: pip install 'fastopt[checkpoint]'"
        ) from error
    return safetensors


# ---------------------------------------------------------------------- writing


def write(path: str, arrays: Mapping[str, Array], document: Document) -> None:
    """Write a file and put it in the place of what is at `path`, if anything.

    Raises
    ------
    OSError
        If that fails. What was at `path` is still there.
    ValueError
        If a name or dtype has no place in the format.
    """
    library = require_safetensors()
    metadata = {KEY: document.to_json()}
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with _workshop(path) as directory:
        new = os.path.join(directory, "new")
        try:
            library.numpy.save_file(contiguous, new, metadata)
        except library.SafetensorError as error:
            if "I/O error" in str(error):
                raise OSError(errno.EIO, f"cannot write checkpoint: {error}", path) from error
            raise ValueError(f"cannot write checkpoint {path!r}: {error}") from error
        # The library makes files that nobody else may read. The directory follows the umask.
        os.chmod(new, os.stat(directory).st_mode & 0o666)
        _sync(new)
        os.replace(new, path)
        _sync(os.path.dirname(path))


@contextlib.contextmanager
def _workshop(path: str) -> Iterator[str]:
    """Make a directory for unfinished files beside `path`, and remove it with all that is left."""
    parent, base = os.path.split(path)
    directory = os.path.join(parent, f".{base}.{secrets.token_hex(6)}.tmp")
    os.mkdir(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _sync(path: str) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True)
class Entry:
    """What the header says of a tensor."""

    dtype: np.dtype[Any] | str  # a string if NumPy has no such dtype
    shape: tuple[int, ...]
    offset: int


class TensorFile:
    """A file whose header has been checked, and whose tensors are mapped.

    Parameters
    ----------
    path : str
        The file.

    Raises
    ------
    OSError
        If there is none, or it cannot be read.
    ValueError
        If it is malformed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._map, header, self._start = _opened(path)
        metadata = header.pop("__metadata__", {})
        self.entries: dict[str, Entry] = {}
        for name, entry in header.items():
            dtype = _dtype(entry["dtype"])
            self.entries[name] = Entry(dtype, tuple(entry["shape"]), entry["data_offsets"][0])
        self.document = document_of(metadata[KEY], path) if KEY in metadata else None

    def array(self, name: str) -> Array:
        """Return a tensor as a read-only array, whose memory is the file's."""
        entry = self.entries[name]
        if isinstance(entry.dtype, str):
            raise ValueError(f"{self.path}: NumPy has no dtype for {entry.dtype}, that of {name!r}")
        size = math.prod(entry.shape)
        try:
            if size == 0:
                array = np.empty(entry.shape, entry.dtype)
                array.flags.writeable = False
                return array
            flat = np.frombuffer(self._map, entry.dtype, size, self._start + entry.offset)
            return flat.reshape(entry.shape)
        except (ValueError, OverflowError, MemoryError) as error:
            raise ValueError(
                f"{self.path}: {name!r} has shape {entry.shape}, which NumPy cannot have: {error}"
            ) from error


def _opened(path: str) -> tuple[mmap.mmap, dict[str, Any], int]:
    """Return the mapped file, its header, which is sound, and where the tensors begin."""
    library = require_safetensors()
    for _ in range(_MOST_TRIES):
        with open(path, "rb") as stream:
            try:
                # The library takes a name, not a file that is open. It may be another file by now.
                with library.safe_open(path, framework="np"):
                    if not os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                        continue
            except library.SafetensorError as error:
                raise ValueError(f"{path} is no checkpoint, or damaged: {error}") from error
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            header = json.loads(stream.read(length))
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            return mapped, header, _LENGTH_BYTES + length
    raise OSError(errno.EBUSY, "the checkpoint is replaced all the time", path)


def _dtype(name: str) -> np.dtype[Any] | str:
    if name == "BF16":
        with contextlib.suppress(ImportError):
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_DTYPES[name]) if name in _DTYPES else name
