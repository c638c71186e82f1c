"""What tests of replicas share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import fastopt as fo


@pytest.fixture(autouse=True)
def _fresh_graph() -> Iterator[Any]:
    with fo.Graph().as_default() as graph:
        yield graph


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert not [thread for thread in threading.enumerate() if thread not in before]
