"""Steps that were half done when they were saved: what was collected for them goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import fastopt as fo
from tests.checkpoint.support import edit
from tests.optimizer_db import RECORDS, Record


def gradients(dtype: Any) -> list[list[Any]]:
    """Return what nine micro-batches have for a table and a vector: slices, arrays, nothing."""
    rng = np.random.default_rng(7)

    def slices(n: int) -> fo.IndexedSlices:
        return fo.IndexedSlices(
            rng.normal(size=(n, 3)).astype(dtype), rng.integers(0, 6, n), (6, 3)
        )

    found = []
    for k in range(9):
        vector = None if k in (1, 4) else rng.normal(size=5).astype(dtype)
        table = rng.normal(size=(6, 3)).astype(dtype) if k == 6 else slices(4 + k)
        found.append([table, vector])
    return found


class Program:
    """A table and a vector, and an optimizer that makes a step of four micro-batches."""

    def __init__(self, make: Callable[[], Any], dtype: Any) -> None:
        self.table = fo.Variable(np.linspace(1, 2, 18).reshape(6, 3).astype(dtype), name="table")
        self.vector = fo.Variable(np.linspace(1, 2, 5).astype(dtype), name="vector")
        self.optimizer = fo.GradientAccumulation(make(), 4)

    def train(self, batches: list[list[Any]]) -> None:
        for table, vector in batches:
            pairs = [(table, self.table), (vector, self.vector)]
            self.optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])

    def bits(self) -> list[bytes]:
        found = [self.table.numpy().tobytes(), self.vector.numpy().tobytes()]
        for name in self.optimizer.get_slot_names():
            for var in (self.table, self.vector):
                slot = self.optimizer.get_slot(var, name)
                found.append(b"" if slot is None else slot.numpy().tobytes())
        return found


@pytest.mark.parametrize("stop", range(1, 9))
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_place_to_stop(stop: int, dtype: str, tmp_path: Path) -> None:
    batches = gradients(dtype)
    straight = Program(lambda: fo.AdagradOptimizer(0.1), dtype)
    straight.train(batches[:stop])
    path = fo.checkpoint.save(tmp_path / "c", straight.optimizer)
    straight.train(batches[stop:])
    with fo.Graph().as_default():
        resumed = Program(lambda: fo.AdagradOptimizer(0.1), dtype)
        resumed.train(batches[:1])  # forgotten: the file counts
        fo.checkpoint.restore(path, resumed.optimizer)
        assert resumed.optimizer.num_accumulated == stop % 4
        resumed.train(batches[stop:])
    assert resumed.optimizer.num_accumulated == straight.optimizer.num_accumulated == 1
    assert resumed.bits() == straight.bits()
    straight.optimizer.flush()
    resumed.optimizer.flush()
    assert resumed.bits() == straight.bits()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.id)
def test_every_rule(record: Record, tmp_path: Path) -> None:
    batches = gradients(np.float32)
    straight = Program(record.make, np.float32)
    straight.train(batches[:6])
    path = fo.checkpoint.save(tmp_path / "c", straight.optimizer)
    straight.train(batches[6:])
    straight.optimizer.flush()
    with fo.Graph().as_default():
        resumed = Program(record.make, np.float32)
        fo.checkpoint.restore(path, resumed.optimizer)
        resumed.train(batches[6:])
        resumed.optimizer.flush()
    assert resumed.bits() == straight.bits()


def test_names_and_what_is_claimed(tmp_path: Path) -> None:
    program = Program(lambda: fo.GradientDescentOptimizer(0.1), np.float32)
    program.train(gradients(np.float32)[:2])
    path = fo.checkpoint.save(tmp_path / "c", program.optimizer)
    collected = [
        "table/GradientDescent/collected_counts",
        "table/GradientDescent/collected_indices",
        "table/GradientDescent/collected_values",
        "vector/GradientDescent/collected_dense",
    ]
    assert sorted(fo.checkpoint.open(path)) == sorted([*collected, "table", "vector"])
    done = fo.checkpoint.restore(path, program.optimizer)
    assert sorted(done.state) == collected
    done = fo.checkpoint.restore(path, variables=[program.table, program.vector])
    assert not done.state  # what the file holds of optimizers is left out
    assert program.optimizer.num_accumulated == 2
    plain = fo.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="unexpected: .*collected_values"):
        fo.checkpoint.restore(path, plain)
    with pytest.raises(ValueError, match="collected gradients of 'vector', which is not among"):
        fo.checkpoint.save(tmp_path / "d", program.optimizer, [program.table])


def test_what_does_not_fit(tmp_path: Path) -> None:
    """A file is refused before anything has changed."""
    program = Program(lambda: fo.GradientDescentOptimizer(0.1), np.float32)
    program.train(gradients(np.float32)[:2])
    path = Path(fo.checkpoint.save(tmp_path / "c", program.optimizer))
    good = path.read_bytes()
    prefix = "table/GradientDescent/collected_"

    def put(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
        return lambda tensors: tensors.update({name: change(tensors[name])})

    changes: list[tuple[Callable[[dict[str, Any]], None], str]] = [
        (lambda t: t.pop(f"{prefix}values"), f"missing: .*{prefix}values"),
        (put(f"{prefix}indices", lambda x: x + 6), "row .* in the file, 6 rows here"),
        (put(f"{prefix}indices", lambda x: x - 6), "rows that do not ascend"),
        (put(f"{prefix}indices", lambda x: x[::-1].copy()), "rows that do not ascend"),
        (put(f"{prefix}indices", lambda x: x[1:].copy()), r"indices and .* counts"),
        (put(f"{prefix}counts", lambda x: x.astype("float32")), "slices that are none"),
        (put(f"{prefix}values", lambda x: x.astype("float64")), "dtype float64 in the file"),
        (put(f"{prefix}values", lambda x: x[:, :2].copy()), r"shape \(None, 2\) in the file"),
        (
            put("vector/GradientDescent/collected_dense", lambda x: x[:2].copy()),
            r"shape \(2,\) in the file, \(5,\) here",
        ),
    ]
    before = program.bits()
    for change, message in changes:
        path.write_bytes(good)
        edit(path, change)
        with pytest.raises(ValueError, match=message):
            fo.checkpoint.restore(path, program.optimizer)
        assert program.bits() == before and program.optimizer.num_accumulated == 2
    path.write_bytes(good)
    edit(path, changes[0][0])
    with pytest.raises(ValueError, match="unexpected|missing"):
        fo.checkpoint.restore(path, program.optimizer)
    done = fo.checkpoint.restore(path, program.optimizer, strict=False)
    assert done.missing and program.optimizer.num_accumulated == 0  # never a part of a mean


def test_a_variable_that_is_not_restored(tmp_path: Path) -> None:
    """What was collected for all variables is a mean together, or not at all."""
    program = Program(lambda: fo.GradientDescentOptimizer(0.1), np.float32)
    program.train(gradients(np.float32)[:2])
    path = fo.checkpoint.save(tmp_path / "c", program.optimizer)
    with fo.Graph().as_default():
        other = Program(lambda: fo.GradientDescentOptimizer(0.1), np.float32)
        done = fo.checkpoint.restore(path, other.optimizer, [other.table], strict=False)
    lost = "collected gradients of 'vector' (optimizer 'GradientDescent')"
    assert done.missing == (f"variable 'vector', for {lost}",)
    assert other.optimizer.num_accumulated == 0


def test_nothing_is_left_of_a_mean_that_is_not_whole(tmp_path: Path) -> None:
    batches = gradients(np.float32)
    program = Program(lambda: fo.GradientDescentOptimizer(0.1), np.float32)
    program.train(batches[:2])
    path = Path(fo.checkpoint.save(tmp_path / "c", program.optimizer))
    edit(path, lambda tensors: tensors.pop("vector/GradientDescent/collected_dense"))
    bits = []
    for restores in (False, True):
        with fo.Graph().as_default():
            other = Program(lambda: fo.GradientDescentOptimizer(0.1), np.float32)
            if restores:
                fo.checkpoint.restore(path, other.optimizer, strict=False)
            other.train(batches[2:6])
        bits.append(other.bits())
    assert bits[0] == bits[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.update(count="two"), "damaged"),
        (lambda record: record["sums"]["table"].update(dtype="int32"), "gradients of dtype"),
        (lambda record: record["sums"]["table"]["tensors"].pop("counts"), "parts"),
        (lambda record: record["numbers"].update(tokens=[0.5]), "damaged"),
    ],
)
def test_damaged_description(change: Any, message: str, tmp_path: Path) -> None:
    program = Program(lambda: fo.GradientDescentOptimizer(0.1), np.float32)
    program.train(gradients(np.float32)[:2])
    path = fo.checkpoint.save(tmp_path / "c", program.optimizer)
    with safetensors.safe_open(path, framework="np") as file:
        document = json.loads(file.metadata()["fastopt"])
    change(document["collected"]["GradientDescent"])
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file(tensors, path, {"fastopt": json.dumps(document)})
    with pytest.raises(ValueError, match=message):
        fo.checkpoint.restore(path, program.optimizer)


# ---------------------------------------------------------------------- accumulators


def feed(dense: Any, sparse: Any, start: int, stop: int) -> None:
    rng = np.random.default_rng(3)
    for k in range(stop):
        gradient, values = rng.normal(size=(2, 3)), rng.normal(size=(5, 4))
        rows = rng.integers(0, 9, 5)
        if k >= start:
            assert dense.apply_grad(gradient.astype(dense.dtype), 2)
            assert sparse.apply_grad(rows, values.astype(sparse.dtype), None, 2)


@pytest.mark.parametrize("reduction", ["MEAN", "SUM"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_accumulators(dtype: Any, reduction: str, tmp_path: Path) -> None:
    def make() -> tuple[Any, Any]:
        dense = fo.ConditionalAccumulator(dtype, name="dense", reduction_type=reduction)
        sparse = fo.SparseConditionalAccumulator(
            dtype, (9, None), name="sparse", reduction_type=reduction
        )
        return dense, sparse

    straight, resumed = make(), make()
    for accumulator in straight:
        accumulator.set_global_step(2)
    feed(*straight, 0, 3)
    path = fo.checkpoint.save(tmp_path / "c", variables=[], accumulators=straight)
    feed(*straight, 3, 5)
    feed(*resumed, 0, 1)  # forgotten: the file counts
    fo.checkpoint.restore(path, variables=[], accumulators=resumed)
    assert [accumulator.num_accumulated() for accumulator in resumed] == [3, 3]
    assert not resumed[0].apply_grad(np.zeros((2, 3), dtype), 1)  # too old
    with pytest.raises(ValueError, match="does not fit shape"):
        resumed[1].apply_grad([0], np.zeros((1, 5), dtype), None, 2)
    feed(*resumed, 3, 5)
    taken = [accumulator.take_grad(5) for accumulator in straight + resumed]
    assert taken[0].tobytes() == taken[2].tobytes()
    for one, two in zip(taken[1], taken[3], strict=True):
        assert one.tobytes() == two.tobytes()
    assert repr(straight[0]) == repr(resumed[0])


def test_accumulators_that_do_not_fit(tmp_path: Path) -> None:
    full = fo.ConditionalAccumulator(np.float32, name="a")
    full.apply_grad(np.ones((2, 3), np.float32))
    path = fo.checkpoint.save(tmp_path / "c", variables=[], accumulators={"a": full})
    assert sorted(fo.checkpoint.open(path)) == ["a/collected_dense"]
    assert not fo.checkpoint.restore(path, variables=[]).state  # nobody has asked
    others = [
        (fo.SparseConditionalAccumulator(np.float32), "is for IndexedSlices"),
        (fo.ConditionalAccumulator(np.float64), "has dtype float32 in the file, float64 here"),
        (fo.ConditionalAccumulator(np.float32, (2, 4)), r"shape \(2, 3\) in the file"),
    ]
    for other, message in others:
        with pytest.raises(ValueError, match=message):
            fo.checkpoint.restore(path, variables=[], accumulators={"a": other})
        assert other.num_accumulated() == 0
    with pytest.raises(ValueError, match="missing: accumulator 'b'"):
        fo.checkpoint.restore(path, variables=[], accumulators={"a": full, "b": full})
    with pytest.raises(TypeError, match="accumulators must be of type Accumulator"):
        fo.checkpoint.save(path, variables=[], accumulators={"a": 3})


def test_manager_keeps_accumulators(tmp_path: Path) -> None:
    step = fo.create_global_step()
    accumulator = fo.ConditionalAccumulator(np.float64, name="a")
    manager = fo.checkpoint.CheckpointManager(tmp_path, accumulators=accumulator)
    accumulator.apply_grad([1.0, 2.0])
    manager.save()
    accumulator.apply_grad([5.0, 5.0])
    manager.restore_or_initialize()
    np.testing.assert_array_equal(accumulator.take_grad(1), [1.0, 2.0])
    assert int(step.value) == 0


# ---------------------------------------------------------------------- replicas in step


class Workers:
    """One worker that brings several gradients to each step."""

    def __init__(self) -> None:
        self.table = fo.Variable(np.ones((6, 3), np.float32), name="table")
        self.vector = fo.Variable(np.ones(5, np.float32), name="vector")
        self.step = fo.create_global_step()
        inner = fo.MomentumOptimizer(0.1, 0.9)
        self.optimizer = fo.SyncReplicasOptimizer(inner, 3, 1, timeout=20.0)

    def train(self, start: int, stop: int) -> list[Any]:
        rng = np.random.default_rng(5)
        steps = []
        for k in range(stop):
            values, rows = rng.normal(size=(4, 3)).astype(np.float32), rng.integers(0, 6, 4)
            vector = rng.normal(size=5).astype(np.float32)
            if k >= start:
                pairs = [(fo.IndexedSlices(values, rows), self.table), (vector, self.vector)]
                steps.append(self.optimizer.apply_gradients(pairs, self.step).step)
        return steps

    def bits(self) -> list[bytes]:
        slots = [self.optimizer._optimizer.get_slot(self.table, "momentum")]
        return [v.numpy().tobytes() for v in (self.table, self.vector, self.step, *slots)]


@pytest.mark.parametrize("stop", range(1, 8))
def test_replicas_half_way(stop: int, tmp_path: Path) -> None:
    straight = Workers()
    first = straight.train(0, stop)
    path = fo.checkpoint.save(tmp_path / "c", straight.optimizer)
    rest = straight.train(stop, 11)
    with fo.Graph().as_default():
        resumed = Workers()
        fo.checkpoint.restore(path, resumed.optimizer)
        again = fo.checkpoint.save(tmp_path / "d", resumed.optimizer)  # before anybody has come
        with fo.Graph().as_default():
            twice = Workers()
            fo.checkpoint.restore(again, twice.optimizer)
            assert twice.train(stop, 11) == rest
        assert resumed.train(stop, 11) == rest
    assert first and resumed.bits() == twice.bits() == straight.bits()
    assert resumed.optimizer.num_stale == straight.optimizer.num_stale


def test_replicas_go_back(tmp_path: Path) -> None:
    """An optimizer that has gone on is set back to where it was saved."""
    workers = Workers()
    workers.train(0, 4)
    path = fo.checkpoint.save(tmp_path / "c", workers.optimizer)
    rest = workers.train(4, 9)
    expected = workers.bits()
    fo.checkpoint.restore(path, workers.optimizer)
    # The thread that has taken tokens of later steps begins as a new one.
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(workers.train(4, 9)))
    thread.start()
    thread.join()
    assert got == rest and workers.bits() == expected


def test_replicas_before_the_first_call(tmp_path: Path) -> None:
    straight = Workers()
    path = fo.checkpoint.save(tmp_path / "c", straight.optimizer)
    steps = straight.train(0, 5)
    with fo.Graph().as_default():
        resumed = Workers()
        fo.checkpoint.restore(path, resumed.optimizer)
        assert resumed.train(0, 5) == steps
    assert resumed.bits() == straight.bits()
