"""Opens text files, compressed or not, and turns what goes wrong into `DataError`."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from ._errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_text(path: str | os.PathLike[str]) -> Iterator[io.TextIOWrapper]:
    """Open `path` as UTF-8 text, unpacking gzip (known by its first bytes, not by the name).

    Bytes that are not UTF-8 survive as surrogates: to a hashed categorical column they are as good
    as any others, and everywhere else the reader complains about the field with its line.

    Raises
    ------
    DataError
        The file cannot be opened, is binary, or its gzip stream is cut or damaged.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as raw:
            magic = raw.read(2)
            raw.seek(0)
            packed = magic == _GZIP_MAGIC
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            if b"\0" in stream.peek(1)[:4096]:
                raise DataError(name, "this is a binary file, not text")
            with io.TextIOWrapper(
                cast(BinaryIO, stream), encoding="utf-8-sig", errors="surrogateescape", newline=""
            ) as text:
                yield text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(name, f"the gzip stream is cut or damaged ({error})") from error
    except OSError as error:
        raise DataError(name, error.strerror or str(error)) from error
