"""Equal bits on every instruction-set level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastopt as fo
from fastopt._kernels import _dispatch
from tests.half.digest import digests

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    with fo.Graph().as_default(), fo.num_threads(1):
        return digests()


@pytest.mark.parametrize("level", _dispatch.supported_levels())
def test_levels(level: str, here: dict[str, str], tmp_path: Path) -> None:
    # The checkout comes last on the path: an installed package is what is tested.
    code = f"import runpy, sys; sys.path.append({str(ROOT)!r});"
    code += "runpy.run_module('tests.half.digest', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FASTOPT_SIMD": level},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert dict(line.split() for line in done.stdout.splitlines()) == here
