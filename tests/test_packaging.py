"""What the installed package brings along, and what it does to the process that imports it."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import importlib.metadata
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fastopt
from fastopt._kernels import _dispatch
from fastopt._version import __version__

PACKAGE = Path(fastopt.__file__).parent
CHECKOUT = Path(__file__).parent.parent
EXTENSION_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
GENERATED_SUFFIXES = (".c", ".cpp", ".pxi", ".pyx", ".pxd", ".in", ".h", ".hpp")


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter that sees the same fastopt."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=env | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def extension_modules() -> list[str]:
    return sorted(
        path.name.removesuffix(EXTENSION_SUFFIX)
        for path in (PACKAGE / "_kernels").glob(f"*{EXTENSION_SUFFIX}")
    )


class TestImport:
    def test_imports_numpy_and_itself_only(self):
        done = run_python(
            "import sys, numpy\n"
            "before = set(sys.modules)\n"
            "import fastopt\n"
            "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
            "new -= set(sys.stdlib_module_names)\n"
            "print(sorted(name for name in new if 'cython' not in name))\n"
        )
        # (Cython's extension modules share two modules that exist in memory only.)
        assert done.stdout in ("['fastopt']\n", "['fastopt', 'numpy']\n"), done.stderr

    def test_leaves_subnormal_numbers_alone(self):
        """A module built with fast-math changes them for the whole process.

        symengine/symengine#1453, OpenNMT/CTranslate2#1018
        """
        done = run_python(
            "import warnings; warnings.simplefilter('error')\n"
            "import fastopt, numpy as np\n"
            "import threading\n"
            "def check():\n"
            "    assert 5e-324 * 1.0 == 5e-324 != 0.0\n"
            "    assert 2.0**-1022 / 2 * 2 == 2.0**-1022\n"
            "    assert (np.full(64, 1e-40, np.float32) * np.float32(0.5) > 0).all()\n"
            "    assert (np.full(64, 2.0**-1022) / 4 > 0).all()\n"
            "    assert np.finfo(np.float32).smallest_subnormal > 0\n"
            "check()\n"
            "thread = threading.Thread(target=check); thread.start(); thread.join()\n"
            "print('ok')\n"
        )
        assert done.stdout == "ok\n", done.stderr

    def test_leaves_errors_and_warnings_alone(self):
        done = run_python(
            "import warnings, numpy as np\n"
            "before = np.geterr(), list(warnings.filters), np.get_printoptions()\n"
            "import fastopt\n"
            "print(before == (np.geterr(), list(warnings.filters), np.get_printoptions()))\n"
        )
        assert done.stdout == "True\n", done.stderr

    def test_starts_no_thread(self):
        done = run_python(
            "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'\n"
            "import numpy\n"
            "before = len(os.listdir('/proc/self/task'))\n"
            "import fastopt\n"
            "print(len(os.listdir('/proc/self/task')) - before)\n"
        )
        assert done.stdout == "0\n", done.stderr

    def test_missing_kernels_are_told(self, tmp_path):
        shutil.copytree(
            PACKAGE, tmp_path / "fastopt", ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
        done = run_python(
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fastopt",
            COVERAGE_PROCESS_CONFIG="",  # the copy is not what is measured
            COVERAGE_PROCESS_START="",
        )
        message = done.stderr.splitlines()[-1]
        assert message.startswith("ImportError: the compiled kernels of fastopt are missing")
        assert str(tmp_path / "fastopt") in message


class TestLevel:
    @pytest.mark.parametrize("level", _dispatch.supported_levels())
    def test_may_be_lowered(self, level):
        done = run_python(
            "from fastopt._kernels import _dispatch; print(_dispatch.level())", FASTOPT_SIMD=level
        )
        assert done.stdout == f"{level}\n", done.stderr

    @pytest.mark.parametrize("level", ["v5", "V3", "avx2", "0"])
    def test_unknown_level_is_an_error(self, level):
        done = run_python("import fastopt", FASTOPT_SIMD=level)
        message = done.stderr.splitlines()[-1]
        assert message.startswith("ImportError: ")
        assert f"FASTOPT_SIMD={level!r}" in message

    def test_only_the_chosen_level_is_loaded(self):
        """Importing code for a better processor may end the process.

        rapidfuzz/RapidFuzz#316, #383
        """
        done = run_python(
            "import sys, fastopt\nprint([name for name in sys.modules if '._run_' in name])\n",
            FASTOPT_SIMD="base",
        )
        assert done.stdout == "['fastopt._kernels._run_base']\n", done.stderr


class TestVersion:
    def test_has_one_source(self):
        assert fastopt.__version__ == __version__
        pyproject = CHECKOUT / "pyproject.toml"
        assert 'dynamic = ["version"]' in pyproject.read_text()

    def test_is_that_of_the_distribution(self):
        try:
            installed = importlib.metadata.version("fastopt")
        except importlib.metadata.PackageNotFoundError:
            pytest.skip("runs from the checkout")
        assert installed == __version__


class TestFiles:
    def test_one_stub_for_each_compiled_module_with_a_python_face(self):
        modules = extension_modules()
        assert "_pool" in modules
        for module in modules:
            stub = PACKAGE / "_kernels" / f"{module}.pyi"
            assert stub.exists() != module.startswith("_run_"), stub

    @pytest.mark.parametrize(
        "name", [name for name in extension_modules() if not name.startswith("_run_")]
    )
    def test_stub_names_what_the_module_has(self, name):
        module = importlib.import_module(f"fastopt._kernels.{name}")
        stub = ast.parse((PACKAGE / "_kernels" / f"{name}.pyi").read_text())
        stubbed = set()
        for node in stub.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                stubbed.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                stubbed.add(node.target.id)
        own = {
            key
            for key, value in vars(module).items()
            if not key.startswith("_")
            and (isinstance(value, int) or getattr(value, "__module__", "") == module.__name__)
        }
        assert {key for key in stubbed if not key.startswith("_")} == own

    def test_run_modules_show_nothing_to_python(self):
        module = sys.modules[f"fastopt._kernels._run_{_dispatch.level()}"]
        public = [key for key in vars(module) if not key.startswith("_")]
        assert public == ["table"]

    def test_typing_marker_and_data(self):
        assert (PACKAGE / "py.typed").exists()
        assert list((PACKAGE / "datasets").glob("*.csv.gz"))
        assert list((PACKAGE / "datasets").glob("*.LICENSE.md"))

    def test_distribution_holds_the_package_and_nothing_else(self):
        try:
            files = importlib.metadata.files("fastopt")
        except importlib.metadata.PackageNotFoundError:
            pytest.skip("runs from the checkout")
        if files is None or not any(file.match("_kernels/*.so") for file in files):
            pytest.skip("runs from an editable installation")
        for file in files:
            assert file.parts[0] in ("fastopt", f"fastopt-{__version__}.dist-info"), file
            assert "tests" not in file.parts, file
            assert file.suffix not in GENERATED_SUFFIXES, file
        licences = {file.name for file in files if "licenses" in file.parts}
        assert licences == {"LICENSE", "adult.LICENSE.md"}

    def test_wheel_is_small(self):
        """Debug symbols once made a wheel 50 MB bigger (rapidfuzz/RapidFuzz#197)."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
            for path in PACKAGE.rglob("*"):
                if path.is_file() and path.suffix not in (*GENERATED_SUFFIXES, ".pyc"):
                    wheel.write(path, path.relative_to(PACKAGE.parent))
        assert len(packed.getvalue()) < 5_000_000

    def test_git_holds_nothing_generated(self):
        """Committed C code stopped building with the next Python (lyst/lightfm#709)."""
        git = shutil.which("git")
        if git is None or not (CHECKOUT / ".git").exists():
            pytest.skip("runs outside a git checkout")
        tracked = subprocess.run(
            [git, "-C", str(CHECKOUT), "ls-files", "fastopt"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for name in map(Path, tracked):
            assert name.suffix not in (".so", ".c", ".pxi", ".whl"), name
            assert not (name.suffix == ".cpp" and name.name.startswith("_")), name
            assert not name.name.startswith("_run_"), name
