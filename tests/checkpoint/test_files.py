"""Files: whole or not there, and refused if they are not what they should be."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt.checkpoint import _file
from tests.checkpoint.test_resume import in_new_process
from tests.optimizer_db import state_of


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    """Return a trained program and the path of its checkpoint; the program has moved on since."""
    w = fo.Variable(np.arange(6.0).reshape(3, 2), name="w")
    optimizer = fo.AdamOptimizer(0.1)
    optimizer.apply_gradients([(np.ones((3, 2)), w)])
    path = Path(fo.checkpoint.save(tmp_path / "model.safetensors", optimizer))
    optimizer.apply_gradients([(np.ones((3, 2)), w)])
    return w, optimizer, path


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def put(path: Path, header: Any, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# ------------------------------------------------------------------ malformed


class Attack:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


def cut(n: int) -> Any:
    return lambda path: path.write_bytes(path.read_bytes()[:-n])


def entry(**change: Any) -> Any:
    def damage(path: Path) -> None:
        header, data = parts(path)
        header["w"].update(change)
        put(path, header, data)

    return damage


def document(change: Any) -> Any:
    def damage(path: Path) -> None:
        header, data = parts(path)
        metadata = header["__metadata__"]
        if isinstance(change, str):
            metadata["fastopt"] = change
        else:
            text = json.loads(metadata["fastopt"])
            change(text)
            metadata["fastopt"] = json.dumps(text)
        put(path, header, data)

    return damage


def put_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Attack(path.parent / "attacked")))


def put_npz(path: Path) -> None:
    value = np.array([Attack(path.parent / "attacked")], dtype=object)
    with zipfile.ZipFile(path, "w") as archive, archive.open("w.npy", "w") as stream:
        np.lib.format.write_array(stream, value, allow_pickle=True)


def put_objects(path: Path) -> None:
    text = pickle.dumps(Attack(path.parent / "attacked"))
    entry = {"dtype": "O", "shape": [len(text)], "data_offsets": [0, len(text)]}
    put(path, {"w": entry}, text)


HUGE = 2**40
DAMAGES: dict[str, Any] = {
    "cut by 10 bytes": cut(10),
    "cut by 1 byte": cut(1),
    "empty": lambda path: path.write_bytes(b""),
    "three bytes": lambda path: path.write_bytes(b"abc"),
    "cut in the header": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "text": lambda path: path.write_text("not a checkpoint" * 100),
    "huge header": lambda path: path.write_bytes(struct.pack("<Q", 2**62) + b"{}"),
    "more bytes": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "huge shape": entry(shape=[HUGE, HUGE]),
    "huge shape and offsets": entry(shape=[HUGE, HUGE], data_offsets=[0, 8 * HUGE * HUGE]),
    "large shape": entry(shape=[2**30, 2], data_offsets=[0, 2**34]),
    "huge shape without elements": entry(shape=[0, HUGE, HUGE], data_offsets=[0, 0]),
    "negative dimension": entry(shape=[-3, -2]),
    "one negative dimension": entry(shape=[-6]),
    "fractional dimension": entry(shape=[1.5, 4]),
    "unknown dtype": entry(dtype="F80"),
    "complex": entry(dtype="C64"),
    "overlap": entry(data_offsets=[0, 48]),
    "another shape": entry(shape=[2, 3]),
    "another dtype of the size": entry(dtype="I64"),
    "no JSON": lambda path: put(path, b"{" * 1000, b""),
    "deep JSON": lambda path: put(path, b'{"w":' * 100_000, b""),
    "pickle": put_pickle,
    "npz of objects": put_npz,
    "objects": put_objects,
    "document is no JSON": document("{"),
    "document is a number": document("1"),
    "document is deep": document("[" * 100_000),
    "document of a later format": document(lambda text: text.update(format=2)),
    "document without slots": document(lambda text: text["optimizers"]["Adam"].pop("slots")),
    "slots are a list": document(lambda text: text["optimizers"]["Adam"].update(slots=[])),
    "variables are a text": document(lambda text: text.update(variables="w")),
    "step is a text": document(lambda text: text.update(step="1")),
    "optimizers are null": document(lambda text: text.update(optimizers=None)),
    "slot leads nowhere": document(
        lambda text: text["optimizers"]["Adam"]["slots"]["m"].update(w="nowhere")
    ),
    "slot leads to another shape": document(
        lambda text: text["optimizers"]["Adam"]["slots"]["m"].update(w="beta1_power")
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_malformed_files(damage: str, saved: Any, tmp_path: Path) -> None:
    """CVE-2021-41203, CVE-2021-37639: malformed checkpoints crashed or allocated too much.

    Lightning-AI/litgpt#2189, NVIDIA-NeMo/Megatron-Bridge PR#3138: loading one ran code.
    """
    w, optimizer, path = saved
    before = state_of(optimizer, w)
    DAMAGES[damage](path)
    with pytest.raises(ValueError, match="model.safetensors"):
        fo.checkpoint.restore(path, optimizer)
    assert state_of(optimizer, w) == before
    assert not (tmp_path / "attacked").exists()


def test_a_huge_shape_allocates_nothing(saved: Any) -> None:
    _, _, path = saved
    DAMAGES["huge shape"](path)
    code = (
        "import resource, sys, fastopt as fo\n"
        "used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: fo.checkpoint.open(sys.argv[1])\n"
        "except ValueError: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 64 * 1024  # kB; the shape says 8 * 2**80 bytes


def test_shapes_that_numpy_cannot_have(tmp_path: Path) -> None:
    path = tmp_path / "c"
    many = {"dtype": "F32", "shape": [1] * 70, "data_offsets": [0, 4]}
    none = {"dtype": "F32", "shape": [0, HUGE, HUGE], "data_offsets": [4, 4]}
    odd = {"dtype": "F8_E5M2", "shape": [2], "data_offsets": [4, 6]}
    put(path, {"many": many, "none": none, "odd": odd}, b"\0" * 6)
    found = fo.checkpoint.open(path)
    assert sorted(found) == ["many", "none", "odd"]
    for name in found:
        with pytest.raises(ValueError, match=f"NumPy .*{name}|{name}.* NumPy"):
            found[name]


def test_no_file(tmp_path: Path) -> None:
    for call in (fo.checkpoint.open, fo.checkpoint.restore):
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "nothing")
        with pytest.raises(IsADirectoryError):
            call(tmp_path)


# ------------------------------------------------------------------ whole or not there


def test_killed_at_any_instant(tmp_path: Path) -> None:
    states, cut = map(
        int, in_new_process("tests.checkpoint.killed", str(tmp_path), cwd=tmp_path).split()
    )
    assert states >= 10  # saves came through in between,
    assert cut >= 10  # and were killed on their way


@pytest.mark.parametrize("step", ["save_file", "chmod", "_sync", "replace"])
def test_a_save_that_fails(step: str, saved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    w, optimizer, path = saved
    before = path.read_bytes()

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    library = _file.require_safetensors()
    place = {"save_file": library.numpy, "_sync": _file}.get(step, os)
    monkeypatch.setattr(place, step, fail)
    with pytest.raises(OSError, match="No space left"):
        fo.checkpoint.save(path, optimizer)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_full_disk(saved: Any) -> None:
    """The library's own error is an OSError too, and leaves nothing behind."""
    _, _, path = saved
    before = path.read_bytes()
    code = (
        "import resource, signal, sys, numpy as np, fastopt as fo\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "w = fo.Variable(np.ones(1_000_000), name='w')\n"
        "try: fo.checkpoint.save(sys.argv[1], variables=w)\n"
        "except OSError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert "cannot write checkpoint" in done.stdout and str(path) in done.stdout
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_directories_that_are_not_there_or_closed(tmp_path: Path) -> None:
    w = fo.Variable(np.ones(3), name="w")
    with pytest.raises(FileNotFoundError):
        fo.checkpoint.save(tmp_path / "no" / "c", variables=[w])
    (tmp_path / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        fo.checkpoint.save(tmp_path / "directory", variables=[w])
    assert os.listdir(tmp_path) == ["directory"]


def test_everything_is_on_the_disk_before_the_name_changes(
    saved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, optimizer, path = saved
    events: list[Any] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        events.append(os.stat(descriptor).st_ino)
        fsync(descriptor)

    def note_replace(source: str, target: str) -> None:
        events.append(("rename", os.stat(source).st_ino, target))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    fo.checkpoint.save(path, optimizer)
    new = path.stat().st_ino
    assert events == [new, ("rename", new, str(path)), path.parent.stat().st_ino]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    w = fo.Variable(np.ones(3), name="w")
    old = os.umask(0o027)
    try:
        path = fo.checkpoint.save(tmp_path / "c", variables=[w])
    finally:
        os.umask(old)
    assert os.stat(path).st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    w = fo.Variable(np.ones(3), name="w")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "c")
    assert fo.checkpoint.save(tmp_path / "link", variables=[w]) == str(tmp_path / "real" / "c")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "c").is_file()


def test_equal_states_are_equal_files(tmp_path: Path) -> None:
    def make(name: str) -> bytes:
        with fo.Graph().as_default():
            w, b = fo.Variable(np.ones((3, 2)), name="w"), fo.Variable(np.ones(2), name="b")
            optimizer = fo.AdamOptimizer(0.1)
            optimizer.apply_gradients([(np.ones((3, 2)), w), (np.ones(2), b)])
            return Path(fo.checkpoint.save(tmp_path / name, optimizer)).read_bytes()

    assert make("first") == make("second")


# ------------------------------------------------------------------ memory


def test_mapped_arrays(saved: Any) -> None:
    w, optimizer, path = saved
    found = fo.checkpoint.open(path)
    array = found["w"]
    assert not array.flags.writeable and not array.flags.owndata
    before = array.copy()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0
    fo.checkpoint.save(path, optimizer)  # replaces the file, doesn't write to it
    np.testing.assert_array_equal(array, before)
    np.testing.assert_array_equal(fo.checkpoint.open(path)["w"], w.numpy())
    path.unlink()
    np.testing.assert_array_equal(found["w"], before)
    with pytest.raises(KeyError):
        found["nothing"]
    assert "step None, 5 tensors" in repr(found)


def test_restoring_into_mapped_memory(saved: Any, tmp_path: Path) -> None:
    w, optimizer, path = saved
    memory = np.memmap(tmp_path / "table", np.float64, "w+", shape=(3, 2))
    with fo.Graph().as_default():
        table, other = fo.Variable(memory, name="w", copy=False), fo.AdamOptimizer(0.1)
        fo.checkpoint.restore(path, other)
        other.apply_gradients([(np.ones((3, 2)), table)])
    memory.flush()
    on_disk = np.fromfile(tmp_path / "table").reshape(3, 2)
    np.testing.assert_array_equal(on_disk, w.numpy())


def test_saving_and_restoring_take_no_memory(tmp_path: Path) -> None:
    """Neither copies the table: the limit of memory has no room for that."""
    code = (
        "import resource, sys, numpy as np, fastopt as fo\n"
        "fo.checkpoint._file.require_safetensors()\n"
        "n = 64 * 2**20\n"
        "table = fo.Variable(np.ones(n // 4, np.float32), name='table')\n"
        "def anonymous():\n"
        "    status = open('/proc/self/status').read()\n"
        "    return int(status.split('RssAnon:')[1].split()[0]) * 1024\n"
        "before = anonymous()\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (before + n + n // 2,) * 2)\n"
        "fo.checkpoint.save(sys.argv[1], variables=[table])\n"
        "fo.checkpoint.restore(sys.argv[1], variables=[table])\n"
        "assert (table.value == 1).all()\n"
        "print((anonymous() - before) / n)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.3


# ------------------------------------------------------------------ other threads, other programs


def test_reading_while_it_is_replaced(tmp_path: Path) -> None:
    """A reader finds one of the files, never the header of one with the tensors of the other."""
    path = tmp_path / "c"
    small, large = fo.Variable(np.full(10, 1.0)), fo.Variable(np.full(1000, 2.0))
    fo.checkpoint.save(path, variables={"w": small})
    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            fo.checkpoint.save(path, variables={"w": large, "more of them": small})
            fo.checkpoint.save(path, variables={"w": small})

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(300):
            array = fo.checkpoint.open(path)["w"]
            assert (array == {10: 1.0, 1000: 2.0}[array.size]).all()
    finally:
        stop.set()
        thread.join()


def test_saving_while_another_thread_trains(tmp_path: Path) -> None:
    """With `use_locking` a save falls between two steps."""
    v, w = fo.Variable(np.zeros(50_000), name="v"), fo.Variable(np.zeros(50_000), name="w")
    optimizer = fo.MomentumOptimizer(1.0, 1.0, use_locking=True)
    ones, stop = np.ones(50_000), threading.Event()
    optimizer.apply_gradients([(ones, v), (ones, w)])

    def train() -> None:
        while not stop.is_set():
            optimizer.apply_gradients([(ones, v), (ones, w)])

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(10):
            found = fo.checkpoint.open(fo.checkpoint.save(tmp_path / "c", optimizer))
            steps = found["v/Momentum"][0]
            for name in ("v/Momentum", "w/Momentum"):
                assert (found[name] == steps).all()
            for name in ("v", "w"):
                assert (found[name] == -steps * (steps + 1) / 2).all()
    finally:
        stop.set()
        thread.join()


def test_without_the_library(tmp_path: Path) -> None:
    """It is an extra: importing fastopt doesn't import it, and using it says what to install."""
    code = (
        "import sys, fastopt as fo\n"
        "assert not any(name.startswith('safetensors') for name in sys.modules)\n"
        "sys.modules['safetensors'] = None\n"
        "w = fo.Variable([1.0])\n"
        "for call in (fo.checkpoint.save, fo.checkpoint.restore, fo.checkpoint.open):\n"
        "    try: call(sys.argv[1])\n"
        "    except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("pip install 'fastopt[checkpoint]'") == 3
    assert not list(tmp_path.iterdir())
