"""Runs the workers turn by turn, so that candidate, peers and limit share every minute."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers import CANDIDATE, LIMIT, PEERS
from bench.workloads import Workload, to_json

HERE = Path(__file__).resolve().parent
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # a wrong core type costs a factor
SETTLE_SECONDS = 0.01  # OpenMP threads spin for a while after their library's turn


class WorkerDied(Exception):
    """The worker ended, or didn't answer in time."""


class WorkFailed(Exception):
    """The library raised; its worker goes on."""


def environment(key: str, threads: int, checkout: bool, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker."""
    env = {name: value for name, value in base.items() if name not in UNSET}
    for name in ("OMP", "MKL", "OPENBLAS", "FASTOPT"):
        env[f"{name}_NUM_THREADS"] = str(threads)
    env["CUDA_VISIBLE_DEVICES"] = ""
    env.pop("BENCH_CHECKOUT", None)
    if checkout:
        env["BENCH_CHECKOUT"] = "1"
    return env | dict(PEERS[key].environment(threads))


class WorkerProcess:
    """A worker and the pipe to it."""

    def __init__(self, key: str, python: str, threads: int, checkout: bool, timeout: float) -> None:
        self.key = key
        self._timeout = timeout
        self._buffer = b""
        env = environment(key, threads, checkout, os.environ)
        # The directory of the interpreter holds tools that libraries look for (ninja).
        env["PATH"] = os.pathsep.join([str(Path(python).parent), env.get("PATH", "")])
        self._process = subprocess.Popen(
            [python, "-P", str(HERE / "worker.py"), key, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if not os.environ.get("BENCH_VERBOSE") else None,
            env=env,
        )
        self._read()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and return the answer."""
        assert self._process.stdin is not None
        try:
            line = json.dumps({"do": do, **arguments}) + "\n"
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerDied(f"ended with code {self._process.poll()}") from error
        return self._read()

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        end = time.monotonic() + self._timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self._process.kill()
                raise WorkerDied(f"no answer in {self._timeout:.0f} s")
            read = os.read(pipe, 1 << 16)
            if not read:
                raise WorkerDied(f"ended with code {self._process.wait()}")
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkFailed(answer["error"])
        return answer


@dataclasses.dataclass
class Measured:
    """What one contestant did in one workload with one number of threads."""

    name: str
    peer: str
    rounds: list[list[float]] = dataclasses.field(default_factory=list)  # seconds a step
    against: list[list[float]] = dataclasses.field(default_factory=list)  # fastopt, same rounds
    loss: float | None = None
    examples: int | None = None
    peak_extra_mb: float | None = None
    resident_mb: float | None = None
    note: str = ""


def plan_groups(
    sizes: Mapping[str, float], always: Iterable[str], budget: float
) -> list[list[str]]:
    """Split contestants so that each group, together with those in `always`, fits the memory.

    Parameters
    ----------
    sizes : mapping of str to float
        Memory of each contestant.
    always : iterable of str
        Contestants that take part in every group.
    budget : float
        Memory that a group may take; a contestant that is too large alone gets its own group.
    """
    fixed = [name for name in sizes if name in set(always)]
    left = budget - sum(sizes[name] for name in fixed)
    groups: list[list[str]] = []
    room = 0.0
    for name in (name for name in sizes if name not in fixed):
        if not groups or sizes[name] > room:
            groups.append([*fixed])
            room = left
        groups[-1].append(name)
        room -= sizes[name]
    return groups or [fixed]


class Driver:
    """Measures workloads, keeping one worker for each library and number of threads.

    Parameters
    ----------
    pythons : mapping of str to str
        The interpreter that has the library, for each peer that takes part.
    rounds : int
        How often every contestant gets its turn.
    seconds : float
        Length of a turn.
    budget_mb : float
        Memory that all contestants of a workload may take together.
    checkout : bool
        Whether fastopt is imported from the checkout rather than from the installed packages.
    """

    def __init__(
        self,
        pythons: Mapping[str, str],
        rounds: int,
        seconds: float,
        budget_mb: float,
        checkout: bool,
        timeout: float = 300.0,
    ) -> None:
        self._pythons = pythons
        self._rounds = rounds
        self._seconds = seconds
        self._budget = budget_mb
        self._checkout = checkout
        self._timeout = timeout
        self._workers: dict[tuple[str, int], WorkerProcess] = {}
        self._absent: dict[tuple[str, int], str] = {}

    def measure(self, work: Workload, threads: int) -> list[Measured]:
        """Measure one workload with one number of threads, everybody in turn."""
        results: dict[tuple[str, str], Measured] = {}
        contestants: list[tuple[str, str]] = []
        for key in self._pythons:
            can = PEERS[key].threads
            if can is not None and threads not in can:
                continue
            answer = self._try(results, key, "", threads, "open", work=to_json(work))
            contestants += [(key, name) for name in (answer or {}).get("names", [])]
        sizes = {f"{key}/{name}": work.megabytes for key, name in contestants}
        always = [f"{key}/{name}" for key, name in contestants if key in (CANDIDATE, LIMIT)]
        pairs = {f"{key}/{name}": (key, name) for key, name in contestants}
        for group in plan_groups(sizes, always, self._budget):
            self._measure_group([pairs[label] for label in group], threads, results)
        for key in dict.fromkeys(key for key, _ in contestants):
            self._try(results, key, "", threads, "close", all=True)
        return list(results.values())

    def _measure_group(
        self,
        group: Sequence[tuple[str, str]],
        threads: int,
        results: dict[tuple[str, str], Measured],
    ) -> None:
        running = []
        for key, name in group:
            answer = self._try(results, key, name, threads, "prepare", name=name)
            if answer is not None:
                entry = results.setdefault((key, name), Measured(name, key))
                entry.loss, entry.examples = answer["loss"], answer["examples"]
                running.append((key, name))
        ours: list[float] = []
        for _ in range(self._rounds):
            for key, name in list(running):
                time.sleep(SETTLE_SECONDS)
                answer = self._try(
                    results, key, name, threads, "turn", name=name, seconds=self._seconds
                )
                if answer is None:
                    running.remove((key, name))
                    continue
                if key == CANDIDATE:
                    ours = answer["times"]
                results[key, name].rounds.append(answer["times"])
                results[key, name].against.append(ours)
        for key, name in running:
            if results[key, name].peak_extra_mb is None:
                answer = self._try(results, key, name, threads, "memory", name=name) or {}
                results[key, name].peak_extra_mb = answer.get("peak_extra_mb")
                results[key, name].resident_mb = answer.get("resident_mb")
        for key in dict.fromkeys(key for key, _ in group):
            self._try(results, key, "", threads, "close", all=False)

    def _try(
        self,
        results: dict[tuple[str, str], Measured],
        key: str,
        contestant: str,
        threads: int,
        do: str,
        **arguments: Any,
    ) -> dict[str, Any] | None:
        """Ask a worker; note why there is no answer."""
        note = self._absent.get((key, threads))
        if note is None:
            try:
                answer = self._worker(key, threads).ask(do, **arguments)
            except WorkFailed as error:
                note = str(error)
            except WorkerDied as error:
                note = str(error)
                worker = self._workers.pop((key, threads), None)
                if worker is None:
                    self._absent[key, threads] = note
                else:
                    worker.stop()
            else:
                if "unsupported" not in answer:
                    return answer
                note = answer["unsupported"]
        title = contestant or PEERS[key].title
        results.setdefault((key, title), Measured(title, key)).note = note
        return None

    def _worker(self, key: str, threads: int) -> WorkerProcess:
        if (key, threads) not in self._workers:
            python = self._pythons[key]
            try:
                worker = WorkerProcess(key, python, threads, self._checkout, self._timeout)
            except WorkFailed as error:
                raise WorkerDied(str(error)) from error
            self._workers[key, threads] = worker
        return self._workers[key, threads]

    def stop(self, threads: int | None = None) -> None:
        """End the workers (of one number of threads)."""
        for key in [k for k in self._workers if threads is None or k[1] == threads]:
            self._workers.pop(key).stop()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()


def find_pythons(
    pythons: Sequence[str], keys: Iterable[str], checkout: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Find for each library the first interpreter that has it, and the versions of packages."""
    wanted = {key: (PEERS[key].requires, PEERS[key].packages) for key in keys}
    code = (
        "import json, sys; sys.path.insert(0 if sys.argv[3] else len(sys.path), sys.argv[2])\n"
        "from bench.peers import importable, versions\n"
        "print(json.dumps({k: versions(p) for k, (r, p) in json.loads(sys.argv[1]).items()"
        " if importable(r)}))"
    )
    found: dict[str, str] = {}
    versions: dict[str, str] = {}
    for python in pythons or [sys.executable]:
        arguments = [json.dumps(wanted), str(HERE.parent), "1" if checkout else ""]
        run = subprocess.run(
            [python, "-P", "-c", code, *arguments], capture_output=True, text=True, check=True
        )
        for key, has in json.loads(run.stdout.splitlines()[-1]).items():
            if key not in found:
                found[key] = python
                versions |= has
    return found, versions
