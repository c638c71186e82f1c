"""The choice of an instruction-set level, and what the compiler made of each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastopt._kernels
from fastopt._kernels import _dispatch
from fastopt._kernels.rules import RULES

KERNELS = Path(fastopt._kernels.__file__).parent
LEVELS = {level for level in ("base", "v3", "v4") if list(KERNELS.glob(f"_run_{level}.*.so"))}
needs_objdump = pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is absent")


def made_by_gcc() -> bool:
    (path,) = KERNELS.glob("_run_base.*.so")
    return b"GCC: (" in path.read_bytes() and b"clang version" not in path.read_bytes()


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_best_level_is_chosen() -> None:
    done = python(
        "from fastopt._kernels._dispatch import level, supported_levels as s; print(level(), *s())",
        FASTOPT_SIMD="",
    )
    chosen, *supported = done.stdout.split()
    assert chosen == supported[-1]
    assert tuple(supported) == _dispatch.supported_levels()


@pytest.mark.parametrize("level", _dispatch.supported_levels())
def test_the_level_can_be_lowered_and_one_module_is_loaded(level: str) -> None:
    done = python(
        "import sys; from fastopt._kernels._dispatch import level; print(level());"
        "print(*[name for name in sys.modules if '._run_' in name])",
        FASTOPT_SIMD=level,
    )
    assert done.stdout.split() == [level, f"fastopt._kernels._run_{level}"]


@pytest.mark.parametrize("wish", ["v5", "AVX2", "base "])
def test_an_impossible_level_ends_the_import(wish: str) -> None:
    done = python("import fastopt._kernels._dispatch", FASTOPT_SIMD=wish)
    assert done.returncode != 0
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith("ImportError")
    assert repr(wish) in message
    assert ", ".join(_dispatch.supported_levels()) in message


@pytest.fixture(scope="module")
def assembly() -> dict[str, dict[str, str]]:
    """Instructions of each function of each run module."""
    result = {}
    for level in LEVELS:
        (path,) = KERNELS.glob(f"_run_{level}.*.so")
        text = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", str(path)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        functions = re.split(r"^[0-9a-f]+ <", text, flags=re.M)[1:]
        result[level] = {f.partition(">")[0]: f for f in functions}
    return result


@needs_objdump
@pytest.mark.skipif("v4" not in LEVELS, reason="built for another architecture")
def test_wide_registers_are_only_where_they_belong(assembly: dict[str, dict[str, str]]) -> None:
    """RapidFuzz#316, RapidFuzz#383: code of a higher level ran on a processor without it."""
    text = {level: "".join(functions.values()) for level, functions in assembly.items()}
    assert "%zmm" in text["v4"]
    assert "%zmm" not in text["v3"]
    assert "%ymm" in text["v3"]
    assert "%ymm" not in text["base"]
    assert not re.search(r"\bvfn?m(add|sub)", "".join(text.values())), "contracted operations"


@needs_objdump
@pytest.mark.skipif("v4" not in LEVELS, reason="built for another architecture")
@pytest.mark.skipif(not made_by_gcc(), reason="other compilers judge for themselves what pays")
@pytest.mark.parametrize("level", sorted(LEVELS))
@pytest.mark.parametrize(("suffix", "letter"), [("f32", "s"), ("f64", "d")])
def test_every_rule_is_vectorised(
    assembly: dict[str, dict[str, str]], level: str, suffix: str, letter: str
) -> None:
    for name, rule in RULES.items():
        parts = {f"{name}_first": rule.first, f"{name}_second": rule.body}
        for function, body in (parts if rule.reduction else {name: rule.body}).items():
            if "pow(" in body:
                continue
            end = f"_run_{level}_{function}_{suffix}"
            symbols = [symbol for symbol in assembly[level] if symbol.endswith(end)]
            assert len(symbols) == 1, function
            code = assembly[level][symbols[0]]
            # The compiler joins functions that are alike: one jumps to the other.
            while same := re.match(r"[^\n]*\n\s+\w+:\s+jmp\s+\w+ <([^>+]+)>", code):
                code = assembly[level][same[1]]
            wanted = {
                "mul",
                *(["sqrt"] if "sqrt(" in body else []),
                *(["div"] if "/" in body else []),
            }
            for operation in wanted:
                assert re.search(rf"\bv?{operation}p{letter}\b", code), (
                    f"{function}: no packed {operation}"
                )


def test_the_floating_point_mode_is_untouched() -> None:
    """gevent/gevent#1891, numpy/numpy#20895: importing a library flushed subnormals everywhere."""
    done = python(
        """
import threading, warnings
import numpy as np
warnings.simplefilter("error")
from fastopt._kernels import _pool
from fastopt._kernels._plan import Plan
class Key: pass
_pool.set_num_threads(3)
key, w, g = Key(), np.ones(300_000, np.float32), np.ones(300_000, np.float32)
plan = Plan("gradient_descent", [key], [w], [()], Key)
assert plan.bind([(g, key)])
plan.run((0.5,))
assert (w == 0.5).all()
def check():
    assert np.finfo(np.float32).smallest_subnormal > 0
    assert np.array([0.25]) * np.array([2.0**-1022]) > 0
    assert float("5e-324") * float("1") > 0
    print("fine")
check()
thread = threading.Thread(target=check)
thread.start()
thread.join()
"""
    )
    assert done.stdout.split() == ["fine", "fine"], done.stderr


def test_the_kernels_are_imported_with_numpy_alone() -> None:
    done = python(
        "import sys; import fastopt._kernels._plan;"
        "print(*{'scipy', 'torch', 'jax', 'Cython'} & set(sys.modules))"
    )
    assert done.returncode == 0
    assert done.stdout.strip() == ""
