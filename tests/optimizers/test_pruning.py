"""Zero rows: found, counted, and left out of a table whose training goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastopt as fo

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "group_ftrl": lambda: fo.GroupFtrlOptimizer(0.5, l21_regularization_strength=0.8),
    "row_wise_adagrad": lambda: fo.RowWiseAdagradOptimizer(0.5),
    "adam": lambda: fo.AdamOptimizer(0.1),
    "adagrad_da": lambda: fo.AdagradDAOptimizer(
        0.5, fo.Variable(np.int64(0), trainable=False, name="da_step")
    ),
    "centered": lambda: fo.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
    "decayed": lambda: fo.decouple(fo.MomentumOptimizer(0.1, 0.9), 0.01),
}


def slices(seed: int, rows: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return look-ups of these rows, some of them repeated, and their gradients."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(rows, 2 * rows.size)
    return rng.normal(size=(ids.size, 3)).astype(dtype), ids


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_training_goes_on_to_the_same_bits(name: str, dtype: Any) -> None:
    rows = np.array([0, 2, 3, 7, 8, 15])
    opt = OPTIMIZERS[name]()
    start = np.zeros((20, 3), dtype)
    start[rows] = np.random.default_rng(0).normal(size=(rows.size, 3))
    table, twin = fo.Variable(start, name="table"), fo.Variable(start, name="twin")
    for seed in range(3):
        values, ids = slices(seed, rows, dtype)
        both = [(fo.IndexedSlices(values, ids), var) for var in (table, twin)]
        opt.apply_gradients(both)
    kept, pruned = fo.prune_zero_rows(table, opt)
    np.testing.assert_array_equal(kept, np.setdiff1d(np.arange(20), fo.zero_rows(twin)))
    assert kept.dtype == np.int64 and 0 < kept.size < 20
    assert pruned.name == "table_pruned" and pruned.dtype == dtype and pruned.trainable
    for seed in range(3, 6):
        values, ids = slices(seed, kept, dtype)
        small = fo.IndexedSlices(values, np.searchsorted(kept, ids), (kept.size, 3))
        opt.apply_gradients([(small, pruned), (fo.IndexedSlices(values, ids), twin)])
        np.testing.assert_array_equal(pruned.numpy(), twin.numpy()[kept])
    for slot_name in opt.get_slot_names():
        slot, whole = opt.get_slot(pruned, slot_name), opt.get_slot(twin, slot_name)
        assert slot is not None and slot.shape[0] == kept.size
        np.testing.assert_array_equal(slot.numpy(), whole.numpy()[kept])
        assert opt.get_slot(table, slot_name) is None


def test_the_larger_table_begins_anew() -> None:
    opt = fo.GroupFtrlOptimizer(0.5)
    table, fresh = (fo.Variable(np.zeros((4, 2)), name=name) for name in ("table", "fresh"))
    one = fo.IndexedSlices(np.ones((1, 2)), [1])
    opt.apply_gradients([(one, table)])
    _, pruned = fo.prune_zero_rows(table, opt)
    fresh.assign(table.numpy())
    opt.apply_gradients([(one, table)])
    opt.apply_gradients([(one, fresh)])
    np.testing.assert_array_equal(table.numpy(), fresh.numpy())
    slot = opt.get_slot(pruned, "linear")
    assert slot is not None and slot.numpy().tolist() == [[1.0, 1.0]]


def test_settings_move() -> None:
    opt = fo.AdagradOptimizer(1.0)
    table, twin = (fo.Variable(np.eye(3)[:, :2], name=name) for name in ("table", "twin"))
    opt.configure([table, twin], learning_rate=0.25)
    opt.apply_gradients([(np.ones((3, 2)), var) for var in (table, twin)])
    table.assign(np.where([[True], [False], [True]], table.value, 0.0))
    kept, pruned = fo.prune_zero_rows(table, [opt])
    opt.apply_gradients([(np.ones((2, 2)), pruned), (np.ones((3, 2)), twin)])
    np.testing.assert_array_equal(pruned.numpy(), twin.numpy()[kept])


def test_checkpoint_of_a_pruned_table(tmp_path: Path) -> None:
    """A program that makes the smaller table under its name restores it, strictly."""
    path = str(tmp_path / "pruned.safetensors")
    values, ids = slices(1, np.array([1, 4]), np.float64)
    with fo.Graph().as_default():
        opt = fo.GroupFtrlOptimizer(0.5)
        table = fo.Variable(np.zeros((6, 3)), name="table")
        opt.apply_gradients([(fo.IndexedSlices(values, ids), table)])
        kept, pruned = fo.prune_zero_rows(table, opt, name="small")
        fo.checkpoint.save(path, opt, [pruned], {"kept": kept.tolist()})
        gradient = fo.IndexedSlices(np.ones((1, 3)), [1])
        opt.apply_gradients([(gradient, pruned)])
    saved = fo.checkpoint.open(path)
    assert sorted(saved) == ["small", "small/GroupFtrl", "small/GroupFtrl_1"]
    with fo.Graph().as_default():
        again = fo.GroupFtrlOptimizer(0.5)
        small = fo.Variable(np.zeros((2, 3)), name="small")
        assert fo.checkpoint.restore(path, again).extra == {"kept": [1, 4]}
        again.apply_gradients([(gradient, small)])
    np.testing.assert_array_equal(small.numpy(), pruned.numpy())


def test_wrapped_optimizers() -> None:
    table = fo.Variable(np.eye(3)[:, :2], name="table")
    inner = fo.AdagradOptimizer(0.5)
    opt = fo.GradientAccumulation(inner, 2)
    opt.apply_gradients([(np.ones((3, 2)), table)])
    with pytest.raises(ValueError, match="has collected gradients of 'table'"):
        fo.prune_zero_rows(table, opt)
    opt.flush()
    table.assign(np.where([[True], [False], [True]], table.value, 0.0))
    _, pruned = fo.prune_zero_rows(table, (opt, inner))
    slot = opt.get_slot(pruned, "accumulator")
    assert slot is not None and slot.shape == (2, 2) and opt.get_slot(table, "accumulator") is None


def test_several_optimizers_move() -> None:
    opts = [fo.MomentumOptimizer(0.5, 0.5), fo.MomentumOptimizer(0.5, 0.5, name="other")]
    table = fo.Variable(np.array([[0.0], [1.0]]), name="table")
    for scale, opt in enumerate(opts, start=1):
        opt.apply_gradients([(fo.IndexedSlices(np.full((1, 1), scale), [1]), table)])
    table.assign([[0.0], [1.0]])
    _, pruned = fo.prune_zero_rows(table, opts)
    slots = [opt.get_slot(pruned, "momentum") for opt in opts]
    assert [slot.numpy().tolist() for slot in slots if slot is not None] == [[[1.0]], [[2.0]]]


def test_without_optimizer_or_rows() -> None:
    kept, pruned = fo.prune_zero_rows(fo.Variable([0.0, 2.0, 0.0, 3.0], trainable=False, name="t"))
    np.testing.assert_array_equal(kept, [1, 3])
    np.testing.assert_array_equal(pruned.numpy(), [2.0, 3.0])
    assert not pruned.trainable
    opt = fo.AdagradOptimizer(0.5)
    empty = fo.Variable(np.zeros((3, 2)), name="empty")
    opt.apply_gradients([(np.zeros((3, 2)), empty)])
    kept, pruned = fo.prune_zero_rows(empty, opt)
    assert kept.size == 0 and pruned.shape == (0, 2)
    opt.apply_gradients([(np.zeros((0, 2)), pruned)])


def test_zero_rows() -> None:
    table = fo.Variable(np.array([[0.0, 1.0], [0.0, -0.0], [np.nan, 0.0]]), name="table")
    np.testing.assert_array_equal(fo.zero_rows(table), [1])
    assert fo.count_zero_rows(table) == 1
    np.testing.assert_array_equal(fo.zero_rows(fo.Variable([1.0, 0.0, -0.0])), [1, 2])
    np.testing.assert_array_equal(fo.zero_rows(fo.Variable(np.zeros((2, 0)))), [0, 1])
    assert fo.count_zero_rows(fo.Variable(np.zeros((0, 2)))) == 0


@pytest.mark.parametrize("function", [fo.zero_rows, fo.count_zero_rows, fo.prune_zero_rows])
def test_refusals(function: Any) -> None:
    with pytest.raises(TypeError, match=f"{function.__name__}: var must be a fastopt Variable"):
        function(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=f"{function.__name__}: variable 'scalar' has no rows"):
        function(fo.Variable(0.0, name="scalar"))


def test_prune_refuses_before_anything_has_changed() -> None:
    table = fo.Variable(np.eye(3)[:, :2], name="table")
    opt = fo.AdagradOptimizer(0.5)
    opt.apply_gradients([(np.ones((3, 2)), table)])
    for bad in (3, [opt, 3], "opt"):
        with pytest.raises(TypeError, match="optimizers must be optimizers"):
            fo.prune_zero_rows(table, bad)
    for name in ("", 3):
        with pytest.raises(TypeError, match="name must be a string"):
            fo.prune_zero_rows(table, opt, name=name)
    assert opt.get_slot(table, "accumulator") is not None
