"""Equal bits for every number of threads and every instruction-set level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastopt._kernels import _dispatch
from tests.kernels.digest import digests
from tests.kernels.support import threads

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    with threads(1):
        return digests()


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_threads(n: int, alone: dict[str, str]) -> None:
    """piskvorky/gensim#546, glove-python#207: more than one thread means other vectors each run."""
    with threads(n):
        assert digests() == alone


@pytest.mark.parametrize("level", _dispatch.supported_levels())
def test_levels(level: str, alone: dict[str, str], tmp_path: Path) -> None:
    """deepspeedai/DeepSpeed#7556, lyst/lightfm#321: results and crashes that depend on the CPU."""
    # The checkout comes last on the path: an installed package is what is tested.
    code = f"import runpy, sys; sys.path.append({str(ROOT)!r}); sys.argv = ['', '2'];"
    code += "runpy.run_module('tests.kernels.digest', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FASTOPT_SIMD": level},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert dict(line.split() for line in done.stdout.splitlines()) == alone
