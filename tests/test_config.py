"""What ``show_config`` tells."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from fastopt import config, threads
from fastopt._kernels import _dispatch
from fastopt._version import __version__


def test_dicts():
    with threads.num_threads(3):
        shown = config.show_config("dicts")
    scipy = pytest.importorskip("scipy")
    assert shown["versions"] == {
        "fastopt": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }
    assert shown["kernels"]["level"] == _dispatch.level()
    assert shown["kernels"]["level"] in shown["kernels"]["supported levels"]
    assert shown["kernels"]["threads"] == 3
    assert shown["kernels"]["compiler"].split()[0] in ("gcc", "clang")
    assert shown["platform"]["machine"] == platform.machine()


def test_prints_all_of_it(capsys):
    assert config.show_config() is None
    printed = capsys.readouterr().out
    for title, entries in config.show_config("dicts").items():
        assert f"{title}:\n" in printed
        for name, value in entries.items():
            line = ", ".join(value) if isinstance(value, tuple) else str(value)
            assert f"  {name}: {line}\n" in printed


def test_unknown_mode():
    with pytest.raises(ValueError, match='mode must be "stdout" or "dicts", got \'json\''):
        config.show_config("json")


def test_absent_package_is_told(monkeypatch):
    assert config._installed_version("no-such-distribution-of-ours") == "not installed"
