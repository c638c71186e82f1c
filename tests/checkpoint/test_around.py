"""What people put around an optimizer: wrappers, loss scales, moving averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from tests.checkpoint.support import edit, fresh, trained
from tests.optimizer_db import RECORDS, Record


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


def test_replicas_in_step(tmp_path: Path) -> None:
    """Averages inside of a wrapper are found too."""

    def make() -> Any:
        average = fo.ExponentialMovingAverage(0.5)
        inner = fo.MomentumOptimizer(0.1, 0.9)
        return fo.SyncReplicasOptimizer(inner, 1, variable_averages=average), average

    w, step = fo.Variable(np.ones(3), name="w"), fo.create_global_step()
    optimizer, average = make()
    for _ in range(3):
        optimizer.apply_gradients([(np.ones(3), w)], global_step=step)
        average.apply([w])
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    assert sorted(fo.checkpoint.open(path)) == [
        "global_step", "w", "w/ExponentialMovingAverage", "w/Momentum",
    ]  # fmt: skip
    with fo.Graph().as_default():
        w2, step2 = fo.Variable(np.zeros(3), name="w"), fo.create_global_step()
        other, average2 = make()
        fo.checkpoint.restore(path, other)
        other.apply_gradients([(np.ones(3), w2)], global_step=step2)
        average2.apply([w2])
    optimizer.apply_gradients([(np.ones(3), w)], global_step=step)
    average.apply([w])
    assert w.numpy().tobytes() == w2.numpy().tobytes() and int(step2.value) == 4
    assert average.average(w).numpy().tobytes() == average2.average(w2).numpy().tobytes()


def test_settings_of_one_variable(tmp_path: Path) -> None:
    (a, _), optimizer = trained(lambda: fo.MomentumOptimizer(0.1, 0.9), "a", "b")
    optimizer.configure(a, learning_rate=0.5)
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    found = fo.checkpoint.open(path).optimizers["Momentum"].hyperparameters
    assert (found["learning_rate"], found["learning_rate of 'a'"]) == (0.1, 0.5)
    optimizer.configure(a, learning_rate=0.25)
    done = fo.checkpoint.restore(path, optimizer)
    assert done.changed == {"Momentum.learning_rate of 'a'": (0.5, 0.25)}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.id)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits(record: Record, dtype: str, tmp_path: Path) -> None:
    """The bits that 16 do not hold are in the slot "master", and go on from there."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    gradients = np.random.default_rng(0).normal(size=(6, 5, 2)) / 64

    def program() -> Any:
        w = fo.Variable(np.linspace(1, 2, 10).reshape(5, 2).astype(dtype), name="w")
        return w, record.make()

    def train(w: Any, optimizer: Any, start: int, stop: int) -> None:
        for gradient in gradients[start:stop].astype(dtype):
            optimizer.apply_gradients([(gradient, w)])

    w, optimizer = program()
    train(w, optimizer, 0, 3)
    path = fo.checkpoint.save(tmp_path / "c", optimizer, [w])
    train(w, optimizer, 3, 6)
    with fo.Graph().as_default():
        w2, other = program()
        fo.checkpoint.restore(path, other, [w2])
        assert other.get_slot(w2, "master").dtype == np.float32
        train(w2, other, 3, 6)
    assert w.numpy().tobytes() == w2.numpy().tobytes()
    for name in optimizer.get_slot_names():
        expected, found = optimizer.get_slot(w, name), other.get_slot(w2, name)
        assert expected.numpy().tobytes() == found.numpy().tobytes()


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


def test_a_loss_scale_that_nobody_asks_for(tmp_path: Path) -> None:
    """What the file holds of optimizers is left out without them, the loss scales in them too."""
    (w,), optimizer = trained(lambda: fo.AdagradOptimizer(0.1, loss_scale="dynamic"), "w")
    path = fo.checkpoint.save(tmp_path / "c", optimizer)
    done = fo.checkpoint.restore(path, variables=[w])
    assert (done.variables, done.unexpected) == (("w",), ())


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


def test_back_to_before_the_first_average(tmp_path: Path) -> None:
    """The correction for the zero at the beginning begins anew."""
    mean = fo.Variable(np.zeros(2), trainable=False, name="mean")
    path = fo.checkpoint.save(tmp_path / "c", variables=[mean])
    for _ in range(2):
        fo.assign_moving_average(mean, np.array([2.0, 3.0]), 0.9)
        fo.assign_moving_average(mean, np.array([4.0, 7.0]), 0.9)
        fo.checkpoint.restore(path, variables=[mean])
    fo.assign_moving_average(mean, np.array([2.0, 3.0]), 0.9)
    np.testing.assert_allclose(mean.numpy(), [2.0, 3.0], rtol=1e-12)


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
    other.average(w).assign(np.zeros(3))
    for averages in (other, {"slow": other}):
        done = fo.checkpoint.restore(path, variables=[w], averages=averages, strict=False)
        assert len(done.reset) == 1
        np.testing.assert_array_equal(other.average(w), w.numpy())  # as if made now

    def mean() -> Any:
        return np.ones(2)

    average = fo.ExponentialMovingAverage(0.5)
    average.apply([w, mean])
    path = fo.checkpoint.save(tmp_path / "c", variables=[w], averages=average)
    edit(Path(path), lambda tensors: tensors.pop("mean/ExponentialMovingAverage/biased"))
    with pytest.raises(ValueError, match="missing: average of mean"):
        fo.checkpoint.restore(path, variables=[w], averages=average)
    wide = {"mean/ExponentialMovingAverage/biased": np.ones(3)}
    edit(Path(path), lambda tensors: tensors.update(wide))
    with pytest.raises(ValueError, match=r"average of mean has shape \(3,\)"):
        fo.checkpoint.restore(path, variables=[w], averages=average)
    unknown = fo.ExponentialMovingAverage(0.5)
    fo.checkpoint.restore(path, variables=[w], averages=unknown)
    with pytest.raises(ValueError, match=r"mean returned an array of shape \(2,\), before \(3,\)"):
        unknown.apply([mean])


def test_averages_of_variables_that_are_not_in_the_file_are_left_alone(tmp_path: Path) -> None:
    a, b = (fo.Variable(np.ones(3), name=name) for name in "ab")
    average = fo.ExponentialMovingAverage(0.5)
    average.apply([a])
    path = fo.checkpoint.save(tmp_path / "c", variables=[a], averages=average)
    average.apply([b])
    average.average(b).assign(np.full(3, 7.0))
    done = fo.checkpoint.restore(path, variables=[a, b], averages=average, strict=False)
    assert "variable 'b'" in done.missing and not done.reset
    np.testing.assert_array_equal(average.average(b), 7.0)
