"""What is saved under which name, and who gets it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import fastopt as fo
from tests.optimizer_db import RECORDS, Record, every_record, state_of


def trained(make: Callable[[], Any], *names: str, shape: tuple[int, ...] = (4, 2)) -> Any:
    """Return variables and an optimizer that has made two steps with them."""
    variables = [
        fo.Variable(np.full(shape, i + 1.0, np.float32), name=n) for i, n in enumerate(names)
    ]
    optimizer = make()
    for step in (1.0, -2.0):
        pairs = [(np.full(shape, step * (i + 1)), var) for i, var in enumerate(variables)]
        optimizer.apply_gradients(pairs)
    return variables, optimizer


def fresh(make: Callable[[], Any], *names: str, shape: tuple[int, ...] = (4, 2)) -> Any:
    """Return the same in a graph of its own, before the first step."""
    with fo.Graph().as_default():
        return [fo.Variable(np.zeros(shape, np.float32), name=name) for name in names], make()


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the tensors of a file, and leave its description as it is."""
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata()
    tensors = safetensors.numpy.load_file(path)
    change(tensors)
    safetensors.numpy.save_file(tensors, path, metadata)


# ------------------------------------------------------------------ what is in the file


def test_names_and_what_is_recorded(tmp_path: Path) -> None:
    step = fo.create_global_step()
    step.assign(12)
    (table,), optimizer = trained(lambda: fo.AdamOptimizer(0.1, beta1=0.8), "table")
    extra = {"epoch": 2, "rng": np.random.default_rng(1).bit_generator.state}
    path = fo.checkpoint.save(tmp_path / "c.safetensors", optimizer, extra=extra)
    assert path == str((tmp_path / "c.safetensors").resolve())
    saved = fo.checkpoint.open(path)
    assert sorted(saved) == [
        "beta1_power", "beta2_power", "global_step", "table", "table/Adam", "table/Adam_1",
    ]  # fmt: skip
    assert saved.variables == ("global_step", "table")
    assert (saved.step, saved.extra) == (12, extra)
    assert saved.versions.keys() == {"fastopt", "numpy", "safetensors", "python"}
    record = saved.optimizers["Adam"]
    assert record.cls == "AdamOptimizer"
    assert record.hyperparameters == {
        "learning_rate": 0.1, "beta1": 0.8, "beta2": 0.999, "epsilon": 1e-8,
    } | {k: v for k, v in record.hyperparameters.items() if k not in AdamArguments}  # fmt: skip
    assert record.slots == {"m": {"table": "table/Adam"}, "v": {"table": "table/Adam_1"}}
    assert record.non_slots == {"beta1_power": "beta1_power", "beta2_power": "beta2_power"}
    for var in [table, step, *optimizer.variables()]:
        assert saved[var.name].dtype == var.dtype
        np.testing.assert_array_equal(saved[var.name], var.numpy())
    # Any safetensors reader reads it.
    np.testing.assert_array_equal(safetensors.numpy.load_file(path)["table"], table.numpy())


AdamArguments = ("learning_rate", "beta1", "beta2", "epsilon")


def test_every_dtype_and_shape_comes_back(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
    dtypes = [*map(np.dtype, names), np.dtype(ml_dtypes.bfloat16)]
    shapes = [(), (0,), (3,), (0, 4), (2, 3, 2)]
    values = {
        f"{dtype}{shape}": np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        for dtype in dtypes
        for shape in shapes
    }
    kept = [fo.Variable(value, name=name) for name, value in values.items()]
    path = fo.checkpoint.save(tmp_path / "c", variables=kept)
    again = [fo.Variable(np.ones(v.shape, v.dtype), name=n) for n, v in values.items()]
    fo.checkpoint.restore(path, variables=dict(zip(values, again, strict=True)))
    for var, other in zip(kept, again, strict=True):
        assert var.numpy().tobytes() == other.numpy().tobytes()


def test_hyperparameters_of_every_kind_are_recorded(tmp_path: Path) -> None:
    def rate() -> float:
        return 0.5

    schedule = fo.schedules.ExponentialDecay(0.1, 10, 0.5)
    optimizers = {
        "callable": fo.GradientDescentOptimizer(rate),
        "schedule": fo.GradientDescentOptimizer(schedule),
        "variable": fo.GradientDescentOptimizer(fo.Variable(0.25, name="rate")),
        "array": fo.GradientDescentOptimizer(np.array(0.25)),
        "number": fo.GradientDescentOptimizer(np.float32(0.5)),
    }
    path = fo.checkpoint.save(tmp_path / "c", optimizers)
    found = {
        key: record.hyperparameters["learning_rate"]
        for key, record in fo.checkpoint.open(path).optimizers.items()
    }
    assert found == {
        "callable": f"<callable {rate.__qualname__}>",
        "schedule": repr(schedule),
        "variable": "<Variable rate>",
        "array": 0.25,
        "number": 0.5,
    }


# ------------------------------------------------------------------ who gets what


@every_record()
def test_variables_in_another_order(record: Record, tmp_path: Path) -> None:
    """pytorch/pytorch#1489, facebookresearch/fairscale#380: state was matched by position."""
    (a, b), optimizer = trained(record.make, "a", "b")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (b2, a2), resumed = fresh(record.make, "b", "a")
    fo.checkpoint.restore(path, resumed, [b2, a2])
    for var, other in ((a, a2), (b, b2)):
        assert var.numpy().tobytes() == other.numpy().tobytes()
        assert resumed.get_slot_names() == optimizer.get_slot_names()
        for name in optimizer.get_slot_names():
            expected, found = optimizer.get_slot(var, name), resumed.get_slot(other, name)
            assert expected.numpy().tobytes() == found.numpy().tobytes()


def test_slots_made_in_another_order(tmp_path: Path) -> None:
    """Two optimizers of one variable: the names of their slots depend on who came first."""

    def optimizers() -> dict[str, Any]:
        return {"fast": fo.AdamOptimizer(0.1), "slow": fo.AdamOptimizer(0.01)}

    w, first = fo.Variable(np.ones(3), name="w"), optimizers()
    first["fast"].apply_gradients([(np.ones(3), w)])
    first["slow"].apply_gradients([(np.full(3, 7.0), w)])
    path = fo.checkpoint.save(tmp_path / "c", first, [w])
    assert fo.checkpoint.open(path).optimizers["slow"].slots["m"] == {"w": "w/Adam_2"}
    with fo.Graph().as_default():
        w2, second = fo.Variable(np.ones(3), name="w"), optimizers()
        for key in ("slow", "fast"):
            second[key].apply_gradients([(np.ones(3), w2)])
        assert second["slow"].get_slot(w2, "m").name == "w/Adam"
        fo.checkpoint.restore(path, second, [w2])
        for key in first:
            for slot in ("m", "v"):
                expected, found = first[key].get_slot(w, slot), second[key].get_slot(w2, slot)
                np.testing.assert_array_equal(found.numpy(), expected.numpy())
    with pytest.raises(ValueError, match="two are named 'Adam'"):
        fo.checkpoint.save(tmp_path / "c", list(first.values()))


def test_variables_under_other_names(tmp_path: Path) -> None:
    (w,), optimizer = trained(lambda: fo.AdagradOptimizer(0.1), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer, {"encoder/w": w})
    assert sorted(fo.checkpoint.open(path)) == ["encoder/w", "encoder/w/Adagrad"]
    (other,), resumed = fresh(lambda: fo.AdagradOptimizer(0.1), "other")
    fo.checkpoint.restore(path, resumed, {"encoder/w": other})
    np.testing.assert_array_equal(other.numpy(), w.numpy())
    expected, found = optimizer.get_slot(w, "accumulator"), resumed.get_slot(other, "accumulator")
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_slot_is_no_variable(tmp_path: Path) -> None:
    (w,), optimizer = trained(lambda: fo.AdagradOptimizer(0.1), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    with pytest.raises(ValueError, match=r"variable 'w/Adagrad' \(in the file it is 'accumulator'"):
        fo.checkpoint.restore(path, variables=[w, optimizer.get_slot(w, "accumulator")])


def test_slots_of_variables_that_are_not_saved_are_not_either(tmp_path: Path) -> None:
    (a, _), optimizer = trained(lambda: fo.AdagradOptimizer(0.1), "a", "b")
    path = fo.checkpoint.save(tmp_path / "c", optimizer, [a])
    assert sorted(fo.checkpoint.open(path)) == ["a", "a/Adagrad"]


# ------------------------------------------------------------------ what doesn't fit


@pytest.mark.parametrize("record", [r for r in RECORDS if r.slots], ids=lambda r: r.id)
@pytest.mark.parametrize("steps", [0, 2])
def test_a_slot_is_gone(record: Record, steps: int, tmp_path: Path) -> None:
    """DeepRec-AI/DeepRec#1023: moments were left uninitialised when the file lacked them."""
    (w, b), optimizer = trained(record.make, "w", "b")
    path = Path(fo.checkpoint.save(tmp_path / "c", optimizer))
    gone = optimizer.get_slot(w, record.slots[-1]).name
    edit(path, lambda tensors: tensors.pop(gone))
    (w2, b2), other = fresh(record.make, "w", "b") if not steps else _again(record)
    before = state_of(other, w2, b2)
    with pytest.raises(ValueError, match=f"missing: slot '{record.slots[-1]}' of 'w'.*'{gone}'"):
        fo.checkpoint.restore(path, other, [w2, b2])
    assert state_of(other, w2, b2) == before
    done = fo.checkpoint.restore(path, other, [w2, b2], strict=False)
    assert len(done.missing) == len(done.reset) == 1 and gone in done.missing[0]
    # What the slot of a fresh optimizer is.
    (w3, _), new = fresh(record.make, "w", "b")
    with w3.graph.as_default(), new._creating([w3]):
        new._create_slots([w3])
    assert (
        other.get_slot(w2, record.slots[-1]).numpy().tobytes()
        == new.get_slot(w3, record.slots[-1]).numpy().tobytes()
    )
    for name in record.slots:
        expected, found = optimizer.get_slot(b, name), other.get_slot(b2, name)
        assert expected.numpy().tobytes() == found.numpy().tobytes()
    other.apply_gradients([(np.ones((4, 2)), w2), (np.ones((4, 2)), b2)])


def _again(record: Record) -> Any:
    with fo.Graph().as_default():
        return trained(record.make, "w", "b")


@pytest.mark.parametrize("steps", [0, 2])
def test_a_slot_has_too_few_rows(steps: int, tmp_path: Path) -> None:
    """DeepRec-AI/DeepRec#1023, with slots for 5 of 7 rows."""
    make = RECORDS[2].make
    (w, b), optimizer = trained(make, "w", "b")
    path = Path(fo.checkpoint.save(tmp_path / "c", optimizer))
    edit(path, lambda tensors: tensors.update({"w/Adagrad": tensors["w/Adagrad"][:3].copy()}))
    (w2, b2), other = fresh(make, "w", "b") if not steps else _again(RECORDS[2])
    before = state_of(other, w2, b2)
    for strict in (True, False):
        with pytest.raises(ValueError, match=r"slot 'accumulator' of 'w'.*\(3, 2\).*\(4, 2\)"):
            fo.checkpoint.restore(path, other, [w2, b2], strict=strict)
        assert state_of(other, w2, b2) == before
    assert ("w/Adagrad" in w2.graph._names) == bool(steps)  # names are given back too


class RowWise(fo.Optimizer):
    """One number a row, as row-wise Adagrad keeps it."""

    def __init__(self, shape: Callable[[Any], tuple[int, ...]]) -> None:
        super().__init__(False, "RowWise")
        self.shape = shape

    def _create_slots(self, var_list: Any) -> None:
        for var in var_list:
            shape = self.shape(var)
            self._get_or_make_slot_with_initializer(
                var, np.zeros, shape, var.dtype, "accumulator", "RowWise"
            )

    def _apply_dense(self, grad: Any, var: Any) -> None:
        slot = self.get_slot(var, "accumulator")
        slot.assign_add(np.full(slot.shape, 2.0))


SHAPES: dict[str, Callable[[Any], tuple[int, ...]]] = {
    "(rows,)": lambda var: var.shape[:1],
    "(rows, 1)": lambda var: (var.shape[0], 1),
    "(rows, D)": lambda var: var.shape,
}


@pytest.mark.parametrize("saved", SHAPES)
@pytest.mark.parametrize("wanted", SHAPES)
def test_width_of_row_wise_slots(saved: str, wanted: str, tmp_path: Path) -> None:
    """NVIDIA/recsys-examples PR#305: the width of row-wise state was confused on load."""
    (w,), optimizer = trained(lambda: RowWise(SHAPES[saved]), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (w2,), other = fresh(lambda: RowWise(SHAPES[wanted]), "w")
    if saved == wanted:
        fo.checkpoint.restore(path, other, [w2])
        slot = other.get_slot(w2, "accumulator")
        assert slot.shape == SHAPES[saved](w2)
        np.testing.assert_array_equal(slot.numpy(), 4.0)
    else:
        with pytest.raises(ValueError, match="slot 'accumulator' of 'w'.* has shape"):
            fo.checkpoint.restore(path, other, [w2], strict=False)
        assert other.get_slot(w2, "accumulator") is None and not w2.numpy().any()


def test_everything_that_is_wrong_is_listed(tmp_path: Path) -> None:
    variables = {
        "same": fo.Variable(np.ones(3), name="same"),
        "gone": fo.Variable(np.ones(3), name="gone"),
        "wide": fo.Variable(np.ones((3, 1)), name="wide"),
        "exact": fo.Variable(np.ones(3), name="exact"),
    }
    path = fo.checkpoint.save(tmp_path / "c", variables=variables)
    same = fo.Variable(np.zeros(3))
    wanted = {
        "same": same,
        "new": fo.Variable(np.zeros(3)),
        "wide": fo.Variable(np.zeros(3)),
        "exact": fo.Variable(np.zeros(3, np.float32)),
    }
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        fo.checkpoint.restore(path, variables=wanted)
    for part in (
        "variable 'wide' has shape (3, 1) in the file, (3,) here",
        "variable 'exact' has dtype float64 in the file, float32 here",
        "missing: variable 'new'",
        "unexpected: gone",
        str(path),
    ):
        assert part in str(caught.value)
    with pytest.raises(ValueError, match="of another kind"):
        fo.checkpoint.restore(path, variables=wanted, strict=False)
    assert not any(var.numpy().any() for var in wanted.values())
    fit = {"same": same, "new": wanted["new"]}
    with pytest.raises(ValueError, match=r"missing.*unexpected.*strict=False"):
        fo.checkpoint.restore(path, variables=fit)
    assert not same.numpy().any()
    done = fo.checkpoint.restore(path, variables=fit, strict=False)
    assert done.variables == ("same",)
    assert done.missing == ("variable 'new'",)
    assert sorted(done.unexpected) == ["exact", "gone", "wide"]
    assert same.numpy().all() and not wanted["new"].numpy().any()


def test_other_optimizers(tmp_path: Path) -> None:
    (w,), optimizer = trained(lambda: fo.AdamOptimizer(0.1), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (w2,), lazy = fresh(lambda: fo.LazyAdamOptimizer(0.2), "w")
    with pytest.raises(ValueError, match="'Adam' is of class AdamOptimizer in the file, LazyAdam"):
        fo.checkpoint.restore(path, {"Adam": lazy}, [w2])
    assert lazy.get_slot(w2, "m") is None
    done = fo.checkpoint.restore(path, {"Adam": lazy}, [w2], strict=False)
    assert done.changed["Adam.learning_rate"] == (0.1, 0.2)
    np.testing.assert_array_equal(lazy.get_slot(w2, "m"), optimizer.get_slot(w, "m").numpy())
    (w3,), adagrad = fresh(lambda: fo.AdagradOptimizer(0.2), "w")
    with pytest.raises(ValueError, match="missing: optimizer 'Adagrad'; unexpected: .*w/Adam"):
        fo.checkpoint.restore(path, adagrad, [w3])
    # Without optimizers nothing of theirs is expected.
    assert fo.checkpoint.restore(path, variables=[w3]).variables == ("w",)


def test_a_read_only_variable(tmp_path: Path) -> None:
    memory = np.zeros(3)
    var, other = fo.Variable(memory, name="w", copy=False), fo.Variable(np.zeros(3), name="b")
    path = fo.checkpoint.save(tmp_path / "c", variables={"w": fo.Variable(np.ones(3)), "b": var})
    var._storage.flags.writeable = False
    with pytest.raises(ValueError, match="variable 'w' is read-only"):
        fo.checkpoint.restore(path, variables=[other, var])
    assert not other.numpy().any()


# ------------------------------------------------------------------ before and after the first step


def test_saved_before_the_first_step(tmp_path: Path) -> None:
    """A saved optimizer without slots restores; its slots then start from their initial values."""
    w, optimizer = fo.Variable(np.ones(2), name="w"), fo.AdamOptimizer(0.1)
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (w2,), other = fresh(lambda: fo.AdamOptimizer(0.1), "w", shape=(2,))
    w2 = fo.Variable(np.zeros(2), name="w2")
    fo.checkpoint.restore(path, other, {"w": w2})
    for var, opt in ((w, optimizer), (w2, other)):
        opt.apply_gradients([(np.ones(2), var)])
    assert w.numpy().tobytes() == w2.numpy().tobytes()


def test_back_to_before_the_first_step(tmp_path: Path) -> None:
    w, optimizer = fo.Variable(np.ones(2), name="w"), fo.AdamOptimizer(0.1)
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    runs = []
    for _ in range(2):
        for _ in range(3):
            optimizer.apply_gradients([(np.ones(2), w)])
        runs.append(w.numpy().tobytes())
        with pytest.raises(ValueError, match="missing: slot 'm' of 'w'"):
            fo.checkpoint.restore(path, optimizer, [w])
        done = fo.checkpoint.restore(path, optimizer, [w], strict=False)
        assert len(done.reset) == 4
    assert runs[0] == runs[1]


def test_state_of_variables_that_are_not_in_the_file_is_left_alone(tmp_path: Path) -> None:
    path = fo.checkpoint.save(
        tmp_path / "c", variables={"a": fo.Variable(np.full((4, 2), 9.0, np.float32))}
    )
    (a, b), optimizer = trained(lambda: fo.AdamOptimizer(0.1), "a", "b")
    before = state_of(optimizer, a, b)
    done = fo.checkpoint.restore(path, optimizer, [a, b], strict=False)
    after = state_of(optimizer, a, b)
    assert {name for name in before if before[name] != after[name]} == {"a", "a/Adam", "a/Adam_1"}
    assert not optimizer.get_slot(a, "m").numpy().any() and len(done.reset) == 2


class Counting(fo.Optimizer):
    """Without slots; counts its steps, from what a callable says."""

    def __init__(self) -> None:
        super().__init__(False, "Counting")

    def _create_slots(self, var_list: Any) -> None:
        self._create_non_slot_variable(lambda: np.int64(0), "steps", var_list[0])

    def _apply_dense(self, grad: Any, var: Any) -> None:
        var.assign(var.numpy() - grad)

    def _finish(self, update_ops: Any, name_scope: str) -> None:
        for var in self._non_slot_variables():
            var.assign_add(1)


def test_deferred_until_the_variable_is_made(tmp_path: Path) -> None:
    (w,), optimizer = trained(Counting, "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (w2,), other = fresh(Counting, "w")
    done = fo.checkpoint.restore(path, other, [w2])
    assert done.deferred == ("steps",) and not other._non_slot_variables()
    # What waits is saved too, and restored: the newest wins.
    with w2.graph.as_default():
        again = fo.checkpoint.save(tmp_path / "d", other)
        fo.checkpoint.restore(again, other)
        other.apply_gradients([(np.ones((4, 2)), w2)])
    assert [int(var.value) for var in other.variables() or other._non_slot_variables()] == [3]
    assert int(fo.checkpoint.open(again)["steps"]) == 2
    # Once it is made, its own value counts.
    assert int(fo.checkpoint.open(fo.checkpoint.save(again, other, [w2]))["steps"]) == 3
    # A value that doesn't fit is refused when the variable would be made.
    edit(Path(path), lambda tensors: tensors.update(steps=np.zeros(3, np.int64)))
    (w3,), third = fresh(Counting, "w")
    fo.checkpoint.restore(path, third, [w3])
    before = w3.numpy().tobytes()
    with pytest.raises(ValueError, match=r"restored value of 'steps' has shape \(3,\)"):
        third.apply_gradients([(np.ones((4, 2)), w3)])
    assert w3.numpy().tobytes() == before


def test_hyperparameters_that_need_a_step(tmp_path: Path) -> None:
    """Slots are made before the first step, beta powers by a schedule of it."""
    schedule = fo.schedules.ExponentialDecay(0.5, 2, 0.9)

    def program() -> Any:
        step = fo.create_global_step()
        return fo.Variable(np.ones(2), name="w"), fo.AdamOptimizer(0.1, beta1=schedule), step

    w, optimizer, step = program()
    for _ in range(3):
        optimizer.apply_gradients([(np.ones(2), w)], global_step=step)
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    with fo.Graph().as_default():
        w2, other, step2 = program()
        fo.checkpoint.restore(path, other)
        other.apply_gradients([(np.ones(2), w2)], global_step=step2)
    optimizer.apply_gradients([(np.ones(2), w)], global_step=step)
    assert w.numpy().tobytes() == w2.numpy().tobytes()


# ------------------------------------------------------------------ around the optimizer


def test_wrapped_optimizers(tmp_path: Path) -> None:
    def make() -> Any:
        inner = fo.MixedPrecisionLossScaleOptimizer(fo.AdagradOptimizer(0.1), "dynamic")
        return fo.GradientAccumulation(inner, 2)

    (w,), optimizer = trained(make, "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    saved = fo.checkpoint.open(path)
    assert list(saved.optimizers) == [
        "Adagrad", "Adagrad/base_optimizer", "Adagrad/base_optimizer/base_optimizer",
    ]  # fmt: skip
    assert sorted(saved) == ["current_loss_scale", "good_steps", "w", "w/Adagrad"]
    (w2,), other = fresh(make, "w")
    fo.checkpoint.restore(path, other, [w2])
    scale = other._optimizer.loss_scale
    assert [int(var.value) for var in scale.variables()] == [2**15, 1]
    optimizer.apply_gradients([(np.ones((4, 2)), w)])
    for call in (
        lambda: fo.checkpoint.save(tmp_path / "d", optimizer),
        lambda: fo.checkpoint.restore(path, optimizer),
    ):
        with pytest.raises(ValueError, match="'Adagrad' has collected 1 micro-batches"):
            call()


def test_loss_scale_of_an_optimizer(tmp_path: Path) -> None:
    scales: list[Any] = []

    def make() -> Any:
        scales.append(fo.loss_scale.DynamicLossScale(8.0))
        return fo.AdagradOptimizer(0.1, loss_scale=scales[-1])

    (w,), optimizer = trained(make, "w")
    optimizer.apply_gradients([(np.full((4, 2), np.nan), w)])
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    (w2,), other = fresh(make, "w")
    fo.checkpoint.restore(path, other, [w2])
    assert [(scale(), scale.skipped_steps) for scale in scales] == [(4.0, 1)] * 2
    (w3,), without = fresh(lambda: fo.AdagradOptimizer(0.1), "w")
    with pytest.raises(ValueError, match=r"unexpected: .*current_loss_scale"):
        fo.checkpoint.restore(path, without, [w3])
    (w4,), plain = trained(lambda: fo.AdagradOptimizer(0.1), "w4")
    path = fo.checkpoint.save(tmp_path / "d", plain, {"w": w4})
    with pytest.raises(ValueError, match="missing: loss scale 'Adagrad/loss_scale'"):
        fo.checkpoint.restore(path, other, [w2])


def test_averages(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    changes = rng.normal(size=(8, 2, 3))
    rows = [rng.permutation(6)[:2] for _ in range(8)]

    class Program:
        def __init__(self) -> None:
            self.table = fo.Variable(np.ones((6, 3), np.float32), name="table")
            self.mean = fo.Variable(np.zeros(()), trainable=False, name="mean")
            self.average = fo.ExponentialMovingAverage(0.8, zero_debias=True)

            def loss() -> Any:
                return self.table.numpy().sum()

            self.loss = loss

        def train(self, start: int, stop: int) -> None:
            for step in range(start, stop):
                value = self.table.numpy()
                value[rows[step]] += changes[step]
                self.table.assign(value)
                self.average.apply([self.table, self.loss], rows={self.table: rows[step]})
                fo.assign_moving_average(self.mean, float(value.sum()), 0.9)

        def bits(self) -> list[bytes]:
            parts = [self.table, self.mean, self.average.average(self.table)]
            parts.append(self.average.average(self.loss))
            return [part.numpy().tobytes() for part in parts]

        def everything(self) -> dict[str, Any]:
            return {"variables": [self.table, self.mean], "averages": self.average}

    first = Program()
    first.train(0, 5)
    path = fo.checkpoint.save(tmp_path / "c", **first.everything())
    at_the_stop = first.bits()
    assert sorted(fo.checkpoint.open(path)) == [
        "loss/ExponentialMovingAverage/biased", "mean", "mean/biased", "table",
        "table/ExponentialMovingAverage",
    ]  # fmt: skip
    first.train(5, 8)
    straight = first.bits()
    with fo.Graph().as_default():
        second = Program()
        done = fo.checkpoint.restore(path, **second.everything())
        assert done.deferred == ("loss/ExponentialMovingAverage/biased",)
        again = fo.checkpoint.save(tmp_path / "d", **second.everything())  # what waits as well
        second.train(5, 8)
        assert second.bits() == straight
    # Back in the same process, where averages are there already.
    done = fo.checkpoint.restore(again, **first.everything())
    assert not done.deferred
    assert first.bits() == at_the_stop
    first.train(5, 8)
    assert first.bits() == straight
    # Without averages in the call, nothing of theirs is expected.
    fo.checkpoint.restore(path, variables=[first.table, first.mean])


def test_averages_that_do_not_fit(tmp_path: Path) -> None:
    w = fo.Variable(np.ones(3), name="w")
    average = fo.ExponentialMovingAverage(0.5)
    average.apply([lambda: np.ones(2), lambda: np.ones(2)])
    with pytest.raises(ValueError, match="two functions are named 'lambda'"):
        fo.checkpoint.save(tmp_path / "c", averages=average)
    path = fo.checkpoint.save(tmp_path / "c", averages=fo.ExponentialMovingAverage(0.5))
    other = fo.ExponentialMovingAverage(0.5)
    other.apply([w])
    with pytest.raises(ValueError, match="shadow of 'w'"):
        fo.checkpoint.restore(path, variables=[w], averages=other)
    with pytest.raises(ValueError, match="missing: moving average 'slow'"):
        fo.checkpoint.restore(path, variables=[w], averages={"slow": other})


# ------------------------------------------------------------------ arguments


def test_bad_arguments(tmp_path: Path) -> None:
    w = fo.Variable(np.ones(3), name="w")
    optimizer = fo.AdamOptimizer()
    target = tmp_path / "c"
    bad: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"optimizers": w}, TypeError, "."),
        ({"optimizers": [w]}, TypeError, "optimizers must be of type Optimizer"),
        ({"optimizers": {1: optimizer}}, TypeError, "name must be a string"),
        ({"variables": [np.ones(3)]}, TypeError, "variables must be fastopt Variables"),
        ({"variables": {1: w}}, TypeError, "name must be a string"),
        ({"averages": [w]}, TypeError, "averages must be of type"),
        ({"extra": {1: 2}}, TypeError, "extra has the key 1"),
        ({"extra": {"a": [np.ones(2)]}}, TypeError, r"extra\['a'\]\[0\] must be"),
        ({"extra": (1, 2)}, TypeError, "extra must be"),
        ({"step": 1.5}, TypeError, "step must be an int"),
        ({"step": True}, TypeError, "step must be an int"),
        ({"variables": {"__metadata__": w}}, ValueError, "__metadata__"),
    ]
    for arguments, error, message in bad:
        with pytest.raises(error, match=message):
            fo.checkpoint.save(target, **arguments)
    assert not list(tmp_path.iterdir())


def test_equal_names(tmp_path: Path) -> None:
    w = fo.Variable(np.ones(3), name="w")
    with fo.Graph().as_default():
        other = fo.Variable(np.ones(3), name="w")
    with pytest.raises(ValueError, match="two variables are named 'w'"):
        fo.checkpoint.save(tmp_path / "c", variables=[w, other])
    optimizer = fo.AdagradOptimizer(0.1)
    optimizer.apply_gradients([(np.ones(3), w)])
    with pytest.raises(
        ValueError, match="two tensors of the checkpoint would be named 'w/Adagrad'"
    ):
        fo.checkpoint.save(tmp_path / "c", optimizer, {"w": w, "w/Adagrad": other})
    fo.checkpoint.save(tmp_path / "c", optimizer, [w, w])


def test_a_safetensors_file_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"w": np.full(3, 2.0, np.float32)}, path)
    w = fo.Variable(np.zeros(3, np.float32), name="w")
    done = fo.checkpoint.restore(path, variables=[w])
    assert (done.variables, done.step, done.extra) == (("w",), None, None)
    assert w.numpy().tolist() == [2.0] * 3
    assert fo.checkpoint.open(path).variables == ("w",)
    with pytest.raises(ValueError, match="missing: optimizer 'Adam'"):
        fo.checkpoint.restore(path, fo.AdamOptimizer(), [w])
