"""The thread pool and what decides how many threads it has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastopt import threads
from fastopt._kernels import _pool

HERE = Path(__file__).parent
KERNELS = HERE.parent / "fastopt" / "_kernels"


@pytest.fixture(autouse=True)
def _restore_threads():
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter that sees the same fastopt."""
    env = {key: value for key, value in os.environ.items() if key != "FASTOPT_NUM_THREADS"}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=env | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class TestPool:
    """The C++ pool, driven by a program of its own: see pool_stress.cpp for what it checks."""

    def build_and_run(self, directory: Path, *flags: str) -> None:
        compiler = shutil.which("g++")
        if compiler is None:
            pytest.skip("needs g++")
        probe = directory / "probe.cpp"
        probe.write_text("int main() {}\n")
        if subprocess.run(
            [compiler, *flags, str(probe), "-o", str(directory / "probe")],
            capture_output=True,
            check=False,
        ).returncode:
            pytest.skip(f"g++ can't build with {' '.join(flags)}")
        program = directory / "pool_stress"
        sources = [str(HERE / "pool_stress.cpp"), str(KERNELS / "pool.cpp")]
        subprocess.run(
            [compiler, "-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", *flags]
            + [f"-I{KERNELS}", *sources, "-pthread", "-o", str(program)],
            check=True,
        )
        done = subprocess.run(
            [str(program)],
            env=os.environ | {"TSAN_OPTIONS": "halt_on_error=1 exitcode=66"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if "FATAL: ThreadSanitizer: unexpected memory mapping" in done.stderr:
            pytest.skip("this kernel's address layout is newer than the sanitizer")
        assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr

    def test_keeps_its_promises(self, tmp_path):
        self.build_and_run(tmp_path)

    def test_has_no_data_race(self, tmp_path):
        self.build_and_run(tmp_path, "-fsanitize=thread")

    def test_touches_only_its_own_memory(self, tmp_path):
        self.build_and_run(tmp_path, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class TestSetting:
    def test_set_and_get(self):
        threads.set_num_threads(3)
        assert threads.get_num_threads() == 3
        threads.set_num_threads(np.int64(2))
        assert threads.get_num_threads() == 2

    @pytest.mark.parametrize("n", [True, np.True_, 2.0, "2", None, [1], np.ones(2, int)])
    def test_wrong_type(self, n):
        with pytest.raises(TypeError, match="number of threads must be an integer"):
            threads.set_num_threads(n)
        with pytest.raises(TypeError, match="number of threads must be an integer"):
            threads.num_threads(n)

    @pytest.mark.parametrize("n", [0, -1, 1025, 2**70, np.int8(-3)])
    def test_out_of_range(self, n):
        before = threads.get_num_threads()
        with pytest.raises(ValueError, match=f"from 1 to 1024, got {n}"):
            threads.set_num_threads(n)
        with pytest.raises(ValueError, match=f"from 1 to 1024, got {n}"):
            threads.num_threads(n)
        assert threads.get_num_threads() == before

    def test_largest(self):
        assert _pool.MAX_THREADS == 1024
        threads.set_num_threads(1024)
        assert threads.get_num_threads() == 1024

    def test_context_manager_restores(self):
        threads.set_num_threads(4)
        with threads.num_threads(2):
            assert threads.get_num_threads() == 2
            with threads.num_threads(1):
                assert threads.get_num_threads() == 1
            assert threads.get_num_threads() == 2
        assert threads.get_num_threads() == 4

    def test_context_manager_restores_after_an_error(self):
        threads.set_num_threads(4)
        with pytest.raises(ZeroDivisionError), threads.num_threads(2):
            1 / 0  # noqa: B018
        assert threads.get_num_threads() == 4

    def test_context_manager_may_be_entered_again(self):
        threads.set_num_threads(4)
        two = threads.num_threads(2)
        with two:
            threads.set_num_threads(3)
            with two:
                assert threads.get_num_threads() == 2
            assert threads.get_num_threads() == 3
        assert threads.get_num_threads() == 4
        assert repr(two) == "num_threads(2)"


class TestDefault:
    CODE = "from fastopt import threads; print(threads.get_num_threads())"

    @pytest.mark.parametrize(("value", "number"), [("1", 1), ("3", 3), (" 7 ", 7), ("1024", 1024)])
    def test_environment(self, value, number):
        done = run_python(self.CODE, FASTOPT_NUM_THREADS=value)
        assert done.stdout == f"{number}\n", done.stderr

    @pytest.mark.parametrize("value", ["0", "-1", "1025", "two", "1.0", "1_0", "٣"])
    def test_environment_is_checked(self, value):
        done = run_python(self.CODE, FASTOPT_NUM_THREADS=value)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            "ImportError: the environment variable FASTOPT_NUM_THREADS must be an integer "
            f"from 1 to 1024, got {value!r}"
        )

    def test_empty_environment_is_none(self, monkeypatch):
        monkeypatch.delenv("FASTOPT_NUM_THREADS", raising=False)
        without = threads._default_num_threads()
        monkeypatch.setenv("FASTOPT_NUM_THREADS", " ")
        assert threads._default_num_threads() == without

    @pytest.mark.parametrize(("value", "number"), [("0", 0), (" 50 ", 50), ("1000000", 1_000_000)])
    def test_spin(self, monkeypatch, value, number):
        monkeypatch.setenv("FASTOPT_SPIN_MICROSECONDS", value)
        assert threads._default_spin() == number
        monkeypatch.delenv("FASTOPT_SPIN_MICROSECONDS")
        assert threads._default_spin() == 200

    @pytest.mark.parametrize("value", ["-1", "1000001", "active", "0.5"])
    def test_spin_is_checked(self, value):
        done = run_python(self.CODE, FASTOPT_SPIN_MICROSECONDS=value)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            "ImportError: the environment variable FASTOPT_SPIN_MICROSECONDS must be an integer "
            f"from 0 to 1000000, got {value!r}"
        )

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
    def test_affinity(self):
        done = run_python(
            "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); " + self.CODE
        )
        assert done.stdout == "1\n", done.stderr

    def test_without_affinity(self, monkeypatch):
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: 5)
        assert threads._available_processors() == 5
        monkeypatch.setattr(os, "cpu_count", lambda: None)
        assert threads._available_processors() == 1

    @pytest.mark.parametrize(
        ("processors", "quota", "number"),
        [(8, None, 8), (8, 2.0, 2), (8, 1.5, 2), (8, 0.25, 1), (2, 6.0, 2), (5000, None, 1024)],
    )
    def test_smaller_of_affinity_and_quota(self, monkeypatch, processors, quota, number):
        monkeypatch.delenv("FASTOPT_NUM_THREADS", raising=False)
        monkeypatch.setattr(threads, "_available_processors", lambda: processors)
        monkeypatch.setattr(threads, "_container_quota", lambda: quota)
        assert threads._default_num_threads() == number


class TestContainerQuota:
    def process(self, directory: Path, cgroup: str, mountinfo: str) -> Path:
        process = directory / "proc"
        process.mkdir()
        (process / "cgroup").write_text(cgroup)
        (process / "mountinfo").write_text(
            "22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n" + mountinfo
        )
        return process

    def v2(self, directory: Path, *, group: str, root: str = "/") -> Path:
        return self.process(
            directory,
            f"0::{group}\n",
            f"35 24 0:30 {root} {directory}/fs rw shared:9 master:1 - cgroup2 cgroup2 rw\n",
        )

    def limit_v2(self, directory: Path, text: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cpu.max").write_text(text)

    def test_version_2(self, tmp_path):
        process = self.v2(tmp_path, group="/")
        self.limit_v2(tmp_path / "fs", "150000 100000\n")
        assert threads._container_quota(process) == 1.5

    def test_version_2_without_limit(self, tmp_path):
        process = self.v2(tmp_path, group="/user.slice")
        self.limit_v2(tmp_path / "fs" / "user.slice", "max 100000\n")
        assert threads._container_quota(process) is None

    @pytest.mark.parametrize("tight", ["a", "a/b", "a/b/c"])
    def test_tightest_group_on_the_way_binds(self, tmp_path, tight):
        process = self.v2(tmp_path, group="/a/b/c")
        for group in ["a", "a/b", "a/b/c"]:
            self.limit_v2(tmp_path / "fs" / group, "400000 100000\n")
        self.limit_v2(tmp_path / "fs" / "other", "10000 100000\n")
        self.limit_v2(tmp_path / "fs" / tight, "300000 100000\n")
        assert threads._container_quota(process) == 3.0

    def test_container_that_sees_the_paths_of_its_host(self, tmp_path):
        process = self.v2(tmp_path, group="/docker/abc/inner", root="/docker/abc")
        self.limit_v2(tmp_path / "fs", "400000 100000\n")
        self.limit_v2(tmp_path / "fs" / "inner", "200000 100000\n")
        assert threads._container_quota(process) == 2.0

    def test_group_outside_of_the_mounted_tree(self, tmp_path):
        process = self.v2(tmp_path, group="/../elsewhere", root="/docker/abc")
        self.limit_v2(tmp_path / "fs", "400000 100000\n")
        assert threads._container_quota(process) == 4.0

    def test_version_1(self, tmp_path):
        top = tmp_path / "cpu tree"
        mount = str(top).replace(" ", "\\040")
        process = self.process(
            tmp_path,
            "12:pids:/x\n4:cpu,cpuacct:/job\n0::/init.scope\n",
            f"33 25 0:28 / {tmp_path}/pids rw - cgroup cgroup rw,pids\n"
            f"34 25 0:29 / {mount} rw - cgroup cgroup rw,cpu,cpuacct\n",
        )
        (top / "job").mkdir(parents=True)
        (top / "cpu.cfs_quota_us").write_text("-1\n")
        (top / "cpu.cfs_period_us").write_text("100000\n")
        assert threads._container_quota(process) is None
        (top / "job" / "cpu.cfs_quota_us").write_text("50000\n")
        (top / "job" / "cpu.cfs_period_us").write_text("100000\n")
        assert threads._container_quota(process) == 0.5

    def test_mounted_tree_of_which_the_process_is_no_part(self, tmp_path):
        process = self.process(
            tmp_path, "0::/\n", f"34 25 0:29 / {tmp_path} rw - cgroup cgroup rw,cpu\n"
        )
        assert threads._container_quota(process) is None

    @pytest.mark.parametrize("text", ["", "100000", "x y", "100000 0", "1 2 3", "-5 100000"])
    def test_nonsense_sets_no_limit(self, tmp_path, text):
        process = self.v2(tmp_path, group="/")
        self.limit_v2(tmp_path / "fs", text)
        assert threads._container_quota(process) is None

    @pytest.mark.parametrize("name", ["cgroup", "mountinfo"])
    def test_unreadable_tables_set_no_limit(self, tmp_path, name):
        process = self.v2(tmp_path, group="/")
        self.limit_v2(tmp_path / "fs", "150000 100000\n")
        (process / name).write_text("no such line\n")
        assert threads._container_quota(process) is None
        (process / name).unlink()
        assert threads._container_quota(process) is None


class TestThreadpoolctl:
    CODE = """
from fastopt import threads
threads.set_num_threads(5)
with threadpoolctl.threadpool_limits(1):
    print(threads.get_num_threads())
with threadpoolctl.threadpool_limits({"fastopt": 2}):
    print(threads.get_num_threads())
with threadpoolctl.threadpool_limits(1, user_api="blas"):
    print(threads.get_num_threads())
print(threads.get_num_threads())
(info,) = [i for i in threadpoolctl.threadpool_info() if i["user_api"] == "fastopt"]
print(info["num_threads"], info["version"])
"""

    @pytest.mark.parametrize(
        "imports",
        [
            "import threadpoolctl",
            "import fastopt.threads, threadpoolctl",
            # A list of libraries made before must not hide ours.
            "import threadpoolctl; threadpoolctl.threadpool_info()",
            # Asking whether it is there is not an import.
            "import fastopt.threads, importlib.util; importlib.util.find_spec('threadpoolctl')\n"
            "import threadpoolctl",
        ],
    )
    def test_limits_reach_the_pool(self, imports):
        pytest.importorskip("threadpoolctl")
        from fastopt._version import __version__

        done = run_python(imports + "\n" + self.CODE)
        assert done.stdout == f"1\n2\n5\n5\n5 {__version__}\n", done.stderr

    def test_is_not_imported_by_us(self):
        done = run_python(
            "import sys, fastopt.threads as t\n"
            "print('threadpoolctl' in sys.modules)\n"
            "import importlib.util\n"
            "print(len([f for f in sys.meta_path if type(f).__module__ == t.__name__]))\n"
        )
        assert done.stdout == "False\n1\n", done.stderr

    def test_watcher_leaves_once_it_has_registered(self):
        pytest.importorskip("threadpoolctl")
        done = run_python(
            "import sys, fastopt.threads as t, threadpoolctl\n"
            "print([f for f in sys.meta_path if type(f).__module__ == t.__name__])\n"
        )
        assert done.stdout == "[]\n", done.stderr

    def test_absent_threadpoolctl_is_still_absent(self, tmp_path):
        done = run_python(
            "import sys, fastopt.threads\n"
            "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
            "import threadpoolctl\n"
        )
        assert done.stderr.splitlines()[-1] == (
            "ModuleNotFoundError: No module named 'threadpoolctl'"
        )

    def test_in_this_process(self, monkeypatch):
        threadpoolctl = pytest.importorskip("threadpoolctl")
        threads.set_num_threads(5)
        with threadpoolctl.threadpool_limits({"fastopt": 3}):
            assert threads.get_num_threads() == 3
        assert threads.get_num_threads() == 5
