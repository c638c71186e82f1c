"""Build the kernels: render the page of rules, compile it once per instruction-set level.

Everything that is not about kernels stands in ``pyproject.toml``.

Environment
-----------
FASTOPT_BUILD_DEBUG
    ``1`` compiles with Cython's bounds checks, assertions and debug symbols.
FASTOPT_BUILD_SANITIZE
    ``address,undefined`` or ``thread``: compiles and links with these sanitizers (preload the
    runtime library and set ``PYTHONMALLOC=malloc`` when running).
"""

from __future__ import annotations

import os
import platform
import re
import runpy
from pathlib import Path

import numpy as np
from Cython import Tempita
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
KERNELS = Path("fastopt") / "_kernels"

DEBUG = os.environ.get("FASTOPT_BUILD_DEBUG", "") not in ("", "0")
SANITIZE = os.environ.get("FASTOPT_BUILD_SANITIZE", "")

# -ffp-contract=off keeps the promise of equal bits on every level; -fno-math-errno lets square
# roots vectorise; fast-math is never used: it changes the floating-point mode of the process.
COMMON = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
COMMON += ["-g", "-UNDEBUG"] if DEBUG else ["-g0"]
LINK: list[str] = []
if SANITIZE:
    COMMON += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-g1"]
    LINK += [f"-fsanitize={SANITIZE}"]

LEVELS: dict[str, list[str]] = {"base": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    LEVELS["v3"] = ["-march=x86-64-v3"]
    LEVELS["v4"] = ["-march=x86-64-v4", "-mprefer-vector-width=512"]

MACROS = [
    ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
    ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,  # the kernels index pointers; this is for the rest
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
}

FUNCTIONS = ("sqrt", "pow", "fabs", "copysign", "flush", "fmax", "fmin", "exp", "log1p")


def write_if_changed(path: Path, text: str) -> None:
    """Write only what differs, so that an unchanged kernel is not compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def statements(body: str, suffix: str, ctype: str) -> list[tuple[str, str]]:
    """Split a rule's body into (target, expression), typed for one compute type.

    Functions get the suffix of the type, and numbers are cast, since in C ``1.0`` would turn a
    float32 expression into a float64 one.
    """
    result = []
    for line in re.sub(r"\n\s+(?=[-+*/?]|if |else )", " ", body.strip()).splitlines():
        target, _, expression = (part.strip() for part in line.partition("="))
        if not target.isidentifier() or not expression:
            raise ValueError(f"not an assignment in a rule's body: {line!r}")
        expression = re.sub(
            r"(?<![\w.])(\d+(?:\.\d*)?(?:e[-+]?\d+)?)", rf"(<{ctype}>\1)", expression
        )
        expression = re.sub(rf"\b({'|'.join(FUNCTIONS)})\(", rf"\1_{suffix}(", expression)
        result.append((target, expression))
    return result


def read_template(name: str) -> str:
    """Read a template, with its parts where it includes them, and without its ``##`` comments."""
    text = re.sub(r"(?m)^##.*\n", "", (ROOT / KERNELS / name).read_text())
    return re.sub(r"(?m)^{{include (\S+)}}\n", lambda found: read_template(found[1]), text)


def render_runs() -> None:
    """Render ``run.pxi.in`` with the page of rules, and the two lines that each level adds."""
    rules = runpy.run_path(str(ROOT / KERNELS / "rules.py"))["RULES"]
    template = Tempita.Template(read_template("run.pxi.in"), name="run.pxi.in")
    text = template.substitute(rules=list(rules.values()), statements=statements)
    write_if_changed(
        ROOT / KERNELS / "run.pxi", "# Generated from run.pxi.in and rules.py.\n" + text
    )
    for level in LEVELS:
        write_if_changed(
            ROOT / KERNELS / f"_run_{level}.pyx",
            f'"""Run functions of the instruction-set level {level!r}."""\ninclude "run.pxi"\n',
        )


def includes(path: Path, found: set[Path] | None = None) -> set[Path]:
    """Find what a source of a kernel includes or cimports, what that includes, and so on.

    Cython follows what a ``.pxd`` names, but not what a header includes.
    """
    found = set() if found is None else found
    text = path.read_text()
    names = re.findall(r'(?:#include |cdef extern from )"([\w.]+)"', text)
    modules = re.findall(r"(?m)^(?:from \.(\w+) )?cimport ", text)
    parts = [f"{name}.pxd" for name in (path.stem, *modules) if path.suffix in (".pyx", ".pxd")]
    for name in (*names, *parts, *re.findall(r'(?m)^include "([\w.]+)"', text)):
        other = ROOT / KERNELS / name
        if other.exists() and other not in found and other != path:
            found.add(other)
            includes(other, found)
    return found


def extensions() -> list[Extension]:
    """List one extension per ``.pyx``; the run modules with the flags of their level."""
    result = []
    for path in sorted((ROOT / KERNELS).glob("_*.pyx")):
        name = path.stem
        level = name.removeprefix("_run_") if name.startswith("_run_") else "base"
        if level not in LEVELS:  # left over from a build for another processor
            continue
        cplusplus = "\n# distutils: language = c++\n" in path.read_text()
        sources = [str(KERNELS / path.name)]
        if name == "_pool":
            sources.append(str(KERNELS / "pool.cpp"))
        found = set().union(*(includes(ROOT / source) for source in sources))
        depends = sorted(str(KERNELS / source.name) for source in found)
        flags = [*COMMON, *LEVELS[level]] + (["-std=c++17", "-pthread"] if cplusplus else [])
        result.append(
            Extension(
                f"fastopt._kernels.{name}",
                sources,
                depends=depends,
                include_dirs=[str(KERNELS), np.get_include()],
                define_macros=MACROS,
                extra_compile_args=flags,
                extra_link_args=[*LINK, "-pthread"] if cplusplus else LINK,
                language="c++" if cplusplus else "c",
            )
        )
    return result


class BuildKernels(build_ext):
    """Build extensions two at a time unless told otherwise."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = min(2, os.cpu_count() or 1)


os.chdir(ROOT)
render_runs()
setup(
    ext_modules=cythonize(
        extensions(), compiler_directives=DIRECTIVES, include_path=[str(KERNELS)]
    ),
    cmdclass={"build_ext": BuildKernels},
)
