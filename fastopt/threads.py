"""How many threads the kernels use: the default, the user's wish, tools that steer from outside.

The pool itself is in ``_kernels/_pool``. It has one setting for the whole process, as the thread
pools of BLAS libraries do. Results don't depend on it: they are the same bits for every number.

Threads of the pool wait for the next kernel awake where it is expected soon, as in a training step,
which calls kernels in the same order again and again: waking a thread takes longer than many a
kernel. ``FASTOPT_SPIN_MICROSECONDS`` in the environment says how soon that must be, by default 200.
With 0 they sleep at once, as OpenMP's threads do with ``OMP_WAIT_POLICY=passive``. They never wait
awake where there are as many of them as processors that the process may use.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, SupportsIndex

from fastopt._kernels import _pool

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType

__all__ = ["get_num_threads", "num_threads", "set_num_threads"]

_VARIABLE = "FASTOPT_NUM_THREADS"
_SPIN_VARIABLE = "FASTOPT_SPIN_MICROSECONDS"
_SPIN = 200  # some times what it takes to wake a thread; steps have few longer pauses without BLAS


def get_num_threads() -> int:
    """Return how many threads the kernels may use, the calling one included.

    Returns
    -------
    int
        At first this is ``FASTOPT_NUM_THREADS`` from the environment or, without it, the number of
        processors that the process may use: those of its affinity mask, and no more than the
        quota of its container (rounded up).

    Examples
    --------
    >>> import fastopt as fo
    >>> with fo.num_threads(2):
    ...     fo.get_num_threads()
    2
    """
    return _pool.get_num_threads()


def set_num_threads(n: SupportsIndex) -> None:
    """Set how many threads the kernels may use, for the whole process.

    Small work stays in the calling thread whatever is set here.

    Parameters
    ----------
    n : int
        From 1 to 1024. With 1, all work is done by the calling thread.

    Raises
    ------
    TypeError
        If `n` isn't an integer.
    ValueError
        If `n` is out of range.

    Examples
    --------
    >>> import fastopt as fo
    >>> before = fo.get_num_threads()
    >>> fo.set_num_threads(1)
    >>> fo.get_num_threads()
    1
    >>> fo.set_num_threads(before)
    """
    _pool.set_num_threads(_checked(n))


class num_threads:
    """Context manager that sets the number of threads and restores the one before.

    The setting belongs to the process: it also reaches other Python threads meanwhile.

    Parameters
    ----------
    n : int
        From 1 to 1024.

    Raises
    ------
    TypeError
        If `n` isn't an integer.
    ValueError
        If `n` is out of range.

    Examples
    --------
    >>> import fastopt as fo
    >>> with fo.num_threads(1):
    ...     fo.get_num_threads()
    1
    """

    def __init__(self, n: SupportsIndex) -> None:
        self._wanted = _checked(n)
        self._before: list[int] = []  # a stack: one object may be entered again while it is open

    def __enter__(self) -> None:
        self._before.append(_pool.get_num_threads())
        _pool.set_num_threads(self._wanted)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _pool.set_num_threads(self._before.pop())

    def __repr__(self) -> str:
        return f"num_threads({self._wanted})"


def _checked(n: SupportsIndex) -> int:
    wanted = f"number of threads must be an integer from 1 to {_pool.MAX_THREADS}"
    # True is an integer to Python; as a number of threads it is a mistake.
    try:
        if isinstance(n, bool):
            raise TypeError
        number = operator.index(n)
    except TypeError:
        raise TypeError(f"{wanted}, got {n!r} of type {type(n).__name__}") from None
    if not 1 <= number <= _pool.MAX_THREADS:
        raise ValueError(f"{wanted}, got {number}")
    return number


def _default_num_threads() -> int:
    wish = _from_environment(_VARIABLE, 1, _pool.MAX_THREADS)
    if wish is not None:
        return wish
    number = _available_processors()
    quota = _container_quota()
    if quota is not None:
        number = min(number, math.ceil(quota))
    return min(max(number, 1), _pool.MAX_THREADS)


def _from_environment(variable: str, least: int, most: int) -> int | None:
    wish = os.environ.get(variable, "").strip()
    if not wish:
        return None
    if not (wish.isascii() and wish.isdigit() and least <= int(wish) <= most):
        raise ImportError(
            f"the environment variable {variable} must be an integer from {least} to {most},"
            f" got {wish!r}"
        )
    return int(wish)


def _default_spin() -> int:
    wish = _from_environment(_SPIN_VARIABLE, 0, _pool.MAX_SPIN)
    return _SPIN if wish is None else wish


def _available_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _container_quota(process: Path = Path("/proc/self")) -> float | None:
    """Return the processors that control groups grant this process, None without a limit.

    A limit on any group from the process's own up to the root of the mounted tree binds, in
    version 1 and 2 of the interface. Whatever can't be read or understood sets no limit.
    """
    try:
        groups = (process / "cgroup").read_text(encoding="utf-8", errors="replace")
        mounts = (process / "mountinfo").read_text(encoding="utf-8", errors="replace")
        return min(_quotas(groups, mounts), default=None)
    except (OSError, ValueError):
        return None


def _quotas(groups: str, mounts: str) -> Iterator[float]:
    path_of: dict[str, str] = {}  # by controller; version 2 has one tree, under ""
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        path_of.update(dict.fromkeys(controllers.split(","), path))
    for line in mounts.splitlines():
        # id parent device root mount-point options [optional...] - type source super-options
        place, _, system = line.partition(" - ")
        kind, _, options = system.split(" ", 2)
        if kind == "cgroup2":
            controller, read_quota = "", _quota_v2
        elif kind == "cgroup" and "cpu" in options.split(","):
            controller, read_quota = "cpu", _quota_v1
        else:
            continue
        if controller not in path_of:
            continue
        root, mount_point = (_unescaped(field) for field in place.split(" ")[3:5])
        for directory in _group_directories(Path(mount_point), root, path_of[controller]):
            quota = read_quota(directory)
            if quota is not None:
                yield quota


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field


def _group_directories(mount_point: Path, root: str, group: str) -> Iterator[Path]:
    """Yield the mounted directory of each group from the tree's root down to `group`."""
    yield mount_point
    try:
        parts = PurePosixPath(group).relative_to(root).parts
    except ValueError:  # the process's own group lies outside what is mounted here
        return
    for part in parts:
        mount_point = mount_point / part
        yield mount_point


def _quota_v2(directory: Path) -> float | None:
    return _ratio(lambda: (directory / "cpu.max").read_text().split())


def _quota_v1(directory: Path) -> float | None:
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    return _ratio(lambda: [(directory / name).read_text() for name in names])


def _ratio(read: Callable[[], list[str]]) -> float | None:
    """Return quota divided by period; "max" and -1 stand for no limit."""
    try:
        quota, period = (int(number) for number in read())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None


def _register_with_threadpoolctl() -> None:
    """Let ``threadpoolctl.threadpool_limits`` reach the pool, without importing threadpoolctl."""
    loaded = sys.modules.get("threadpoolctl")
    if loaded is not None:
        _register_controller(loaded)
    else:
        sys.meta_path.insert(0, _ThreadpoolctlWatcher())


def _register_controller(threadpoolctl: Any) -> None:
    base: Any = threadpoolctl.LibController

    class FastoptController(base):  # type: ignore[misc]
        """Controls the thread pool of fastopt through the symbols of its shared library."""

        user_api = "fastopt"
        internal_api = "fastopt"
        filename_prefixes = ("_pool",)
        check_symbols = ("fastopt_get_num_threads", "fastopt_set_num_threads")

        def get_num_threads(self) -> int:
            return int(self.dynlib.fastopt_get_num_threads())

        def set_num_threads(self, num_threads: int) -> None:
            self.dynlib.fastopt_set_num_threads(num_threads)

        def get_version(self) -> str:
            from fastopt._version import __version__

            return __version__

    threadpoolctl.register(FastoptController)


class _ThreadpoolctlWatcher:
    """Finder that waits for the import of threadpoolctl, lets it happen, and registers with it."""

    _searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "threadpoolctl" or self._searching:
            return None
        from importlib.util import find_spec

        self._searching = True
        try:
            spec = find_spec(name)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register_controller(module)

            with contextlib.suppress(AttributeError):  # a loader without room for it stays as it is
                spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


_pool.set_num_threads(_default_num_threads())
_pool.set_spin(_default_spin())
_register_with_threadpoolctl()
