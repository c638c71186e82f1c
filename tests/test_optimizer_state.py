"""What an optimizer remembers: slots, non-slot variables, names, copies."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._slots import Journal, WeakIdentityMap
from tests.optimizer_db import Record, every_record, fresh_graph, state_of

__all__ = ["fresh_graph"]


class Rule(fo.Optimizer):
    """A rule that does nothing, to call the helpers of."""

    def __init__(self) -> None:
        super().__init__(False, "Rule")

    def _apply_dense(self, grad: Any, var: Any) -> None:
        pass


def trained(optimizer: Any, *variables: Any, steps: int = 1) -> Any:
    for _ in range(steps):
        optimizer.apply_gradients([(np.full(var.shape, 0.5, var.dtype), var) for var in variables])
    return optimizer


# ------------------------------------------------------------------ constructor


@pytest.mark.parametrize("name", [None, ""])
def test_a_name_is_required(name: Any) -> None:
    with pytest.raises(ValueError, match="Must specify the optimizer name"):
        fo.Optimizer(False, name)


def test_a_name_is_a_string() -> None:
    with pytest.raises(TypeError, match="^name must be a string, got 3 of type int"):
        fo.AdamOptimizer(name=3)  # type: ignore[arg-type]


def test_the_base_class_can_be_made() -> None:
    optimizer = fo.Optimizer(use_locking=True, name="base")
    assert optimizer.get_name() == "base"
    assert optimizer.get_slot_names() == [] and optimizer.variables() == []


# ------------------------------------------------------------------ get_slot


@every_record()
def test_slots(record: Record) -> None:
    v, w = fo.Variable(np.ones((2, 3)), name="v"), fo.Variable(np.ones(2, np.float32), name="w")
    optimizer = record.make()
    assert optimizer.get_slot_names() == []
    assert all(optimizer.get_slot(v, slot) is None for slot in record.slots)
    trained(optimizer, v)
    assert optimizer.get_slot_names() == sorted(record.slots)
    for slot in record.slots:
        kept = optimizer.get_slot(v, slot)
        assert isinstance(kept, fo.Variable) and not kept.trainable
        shape = v.shape[:1] if slot in record.row_slots else v.shape
        assert kept.shape == shape and kept.dtype == v.dtype
        assert optimizer.get_slot(w, slot) is None
        assert optimizer.get_slot(v, slot) is kept
    assert optimizer.get_slot(v, "unknown") is None
    trained(optimizer, v, w)
    assert all(optimizer.get_slot(w, slot).dtype == np.float32 for slot in record.slots)
    assert [x.name for x in fo.trainable_variables()] == ["v", "w"]


def test_get_slot_of_what_is_no_variable() -> None:
    optimizer = fo.MomentumOptimizer(0.1, 0.9)
    assert optimizer.get_slot("v", "momentum") is None  # nobody has used the name yet
    trained(optimizer, fo.Variable(np.ones(2)))
    for thing in ("v", None, np.ones(2)):
        with pytest.raises(AttributeError, match="must be a fastopt Variable"):
            optimizer.get_slot(thing, "momentum")
    with pytest.raises(TypeError, match="must be a fastopt Variable"):
        optimizer.get_slot(3, "momentum")


def test_variables_are_told_apart_by_identity() -> None:
    a, b = fo.Variable(np.ones(2)), fo.Variable(np.ones(2))
    optimizer = trained(fo.MomentumOptimizer(0.1, 0.9), a)
    assert optimizer.get_slot(a, "momentum") is not None
    assert optimizer.get_slot(b, "momentum") is None


def test_slots_lie_apart_from_each_other_in_a_page() -> None:
    v = fo.Variable(np.zeros(100_000, np.float32))
    optimizer = trained(fo.AdamOptimizer(), v)
    starts = [optimizer.get_slot(v, slot)._storage.ctypes.data % 4096 for slot in ("m", "v")]
    assert starts == [1088, 2176]


# ------------------------------------------------------------------ names


def test_slots_are_named_after_variable_and_optimizer() -> None:
    v, w = fo.Variable(np.ones(2), name="v"), fo.Variable(np.ones(2), name="w")
    first, second = trained(fo.AdamOptimizer(), w, v), trained(fo.AdamOptimizer(), v)
    assert [x.name for x in first.variables()] == [
        "beta1_power",
        "beta2_power",
        "v/Adam",
        "v/Adam_1",
        "w/Adam",
        "w/Adam_1",
    ]
    assert first.get_slot(v, "m").name == "v/Adam" and first.get_slot(v, "v").name == "v/Adam_1"
    assert [x.name for x in second.variables()] == [
        "beta1_power_1",
        "beta2_power_1",
        "v/Adam_2",
        "v/Adam_3",
    ]
    named = trained(fo.AdamOptimizer(name="mine"), v)
    assert named.get_slot(v, "m").name == "v/mine"


def test_ftrl_may_name_its_slots() -> None:
    v = fo.Variable(np.ones(2), name="v")
    optimizer = trained(fo.FtrlOptimizer(0.1, accum_name="a", linear_name="l"), v)
    assert optimizer.get_slot(v, "accum").name == "v/a"
    assert optimizer.get_slot(v, "linear").name == "v/l"
    assert optimizer.get_slot_names() == ["accum", "linear"]


def test_variables_are_sorted_as_plain_strings() -> None:
    variables = [fo.Variable(np.ones(1), name=name) for name in ("b", "B", "a10", "a9")]
    names = [x.name for x in trained(fo.MomentumOptimizer(0.1, 0.9), *variables).variables()]
    assert names == ["B/Momentum", "a10/Momentum", "a9/Momentum", "b/Momentum"]


# ------------------------------------------------------------------ graphs


def test_each_graph_has_its_own_state() -> None:
    optimizer = fo.AdamOptimizer()
    with fo.Graph().as_default() as first:
        a = fo.Variable(np.ones(2), name="a")
        trained(optimizer, a, steps=3)
        names = [x.name for x in optimizer.variables()]
    assert names == ["a/Adam", "a/Adam_1", "beta1_power", "beta2_power"]
    with fo.Graph().as_default():
        assert optimizer.variables() == []
        b = fo.Variable(np.ones(2), name="b")
        trained(optimizer, b)
        assert [x.name for x in optimizer.variables()] == [
            "b/Adam",
            "b/Adam_1",
            "beta1_power",
            "beta2_power",
        ]
        power = optimizer._get_non_slot_variable("beta1_power")
        other = optimizer._get_non_slot_variable("beta1_power", first)
    assert power.numpy() == pytest.approx(0.81) and other.numpy() == pytest.approx(0.9**4)
    # A step belongs to the graph of its variables, whichever is the default one; so do its slots.
    for k in range(2, 4):
        trained(optimizer, b)
        trained(optimizer, a)
        assert power.numpy() == pytest.approx(0.9 ** (k + 1))
        assert other.numpy() == pytest.approx(0.9 ** (k + 3))
    assert optimizer.variables() == []
    with fo.eager_mode():
        assert len(optimizer.variables()) == 8


def test_slots_made_later_belong_to_the_graph_of_their_variable() -> None:
    with fo.Graph().as_default() as graph:
        v = fo.Variable(np.ones(2), name="v")
    optimizer = trained(fo.AdamOptimizer(), v)
    assert all(x.graph is graph for x in (optimizer.get_slot(v, "m"), optimizer.get_slot(v, "v")))
    assert optimizer.variables() == []


def test_one_optimizer_in_eager_mode_and_in_graphs() -> None:
    optimizer = fo.AdamOptimizer()
    with fo.eager_mode():
        scalars = [fo.Variable(1.0), fo.Variable(2.0)]
        optimizer.minimize(lambda: scalars[0] * scalars[1])
        assert len({x.name for x in optimizer.variables()}) == 6
    for _ in range(2):
        with fo.Graph().as_default():
            w = fo.Variable(np.ones(2), name="w")
            optimizer.minimize(np.sum(w * w))
            assert len(optimizer.variables()) == 4


# ------------------------------------------------------------------ helpers for rules


def test_slot_helpers_make_once_and_then_find() -> None:
    v = fo.Variable(np.ones((2, 3), np.float32), name="v")
    rule = Rule()
    zeros = rule._zeros_slot(v, "zeros", "op")
    assert (zeros.name, zeros.dtype, zeros.shape) == ("v/op", np.float32, (2, 3))
    assert not zeros.numpy().any() and not zeros.trainable
    given = rule._get_or_make_slot(v, np.full((2, 3), 7.0), "given", "op")
    assert (given.name, given.dtype) == ("v/op_1", np.float64) and (given.numpy() == 7).all()
    assert rule._get_or_make_slot(v, np.zeros(1), "given", "op") is given
    assert (given.numpy() == 7).all()
    made = rule._get_or_make_slot_with_initializer(v, np.ones, (5,), np.float64, "made", "other")
    assert (made.name, made.shape, made.dtype) == ("v/other", (5,), np.float64)
    assert rule._zeros_slot(v, "made", "other") is made
    assert rule.get_slot_names() == ["given", "made", "zeros"]


def test_a_slot_does_not_share_memory_with_the_value_it_was_made_of() -> None:
    v, start = fo.Variable(np.ones(2)), np.ones(2)
    slot = Rule()._get_or_make_slot(v, start, "s", "s")
    start[:] = 9
    assert slot.numpy().tolist() == [1, 1]


def test_the_table_of_a_slot_is_a_mapping_from_variables() -> None:
    v, w = fo.Variable(np.ones(2)), fo.Variable(np.ones(2))
    rule = Rule()
    table = rule._slot_dict("s")
    assert len(table) == 0 and rule.get_slot_names() == ["s"]
    slot = fo.Variable(np.zeros(2), trainable=False)
    table[v] = slot
    assert rule.get_slot(v, "s") is slot and rule._slot_dict("s") is table
    assert v in table and w not in table


def test_non_slot_variables() -> None:
    rule = Rule()
    v = fo.Variable(np.ones(2))
    assert rule._get_non_slot_variable("count") is None
    count = rule._create_non_slot_variable(lambda: np.int32(3), "count", v)
    assert (count.name, count.dtype, count.trainable) == ("count", np.int32, False)
    assert rule._create_non_slot_variable(5.0, "count") is count
    assert rule._get_non_slot_variable("count") is count
    assert rule._non_slot_variables()[0] is count and rule.variables()[0] is count
    with fo.Graph().as_default() as graph:
        assert rule._get_non_slot_variable("count") is None
    assert rule._get_non_slot_variable("count", graph) is None


# ------------------------------------------------------------------ lives


def test_state_goes_with_its_variable() -> None:
    optimizer = fo.AdamOptimizer()
    keep, drop = fo.Variable(np.ones(2), name="keep"), fo.Variable(np.ones(2), name="drop")
    trained(optimizer, keep, drop, steps=2)
    gone = [weakref.ref(drop), weakref.ref(optimizer.get_slot(drop, "m"))]
    del drop
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    names = [x.name for x in optimizer.variables()]
    assert names == ["beta1_power", "beta2_power", "keep/Adam", "keep/Adam_1"]


def test_a_map_of_weak_identities() -> None:
    class Key:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> Any:
            raise AssertionError("compared")

    a, b, c = Key(), Key(), Key()
    table: WeakIdentityMap[Key, int] = WeakIdentityMap()
    table[a] = 1
    table[b] = 2
    table[b] = 3
    assert table[a] == 1 and table[b] == 3 and len(table) == 2
    assert a in table and c not in table and table.get(c) is None
    with pytest.raises(KeyError):
        table[c]
    assert len(list(table)) == 2 and list(table.values()) == [1, 3]
    del table[a]
    assert a not in table
    del b
    gc.collect()
    assert len(table) == 0 and list(table) == []


def test_a_journal_undoes_the_last_first() -> None:
    shelf: dict[str, int] = {}
    journal = Journal()
    names = [fo.Variable(0.0, name="x") for _ in range(2)]
    for key, var in zip("ab", names, strict=True):
        shelf[key] = 1
        journal.note(shelf, key, var)
    journal.undo()
    assert shelf == {} and fo.Variable(0.0, name="x").name == "x"
    journal.undo()
    assert shelf == {}


# ------------------------------------------------------------------ copies


def continued(optimizer: Any, var: Any) -> bytes:
    rng = np.random.default_rng(11)
    for _ in range(3):
        optimizer.apply_gradients([(rng.normal(size=var.shape), var)])
    return var.numpy().tobytes()


@every_record()
@pytest.mark.parametrize("order", ["optimizer first", "variable first"])
@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copy_with_its_variables_goes_on_alike(record: Record, order: str, way: str) -> None:
    v = fo.Variable(np.linspace(-1, 1, 5), name="v")
    optimizer = trained(record.make(), v, steps=3)
    both = [optimizer, v] if order == "optimizer first" else [v, optimizer]
    copied = copy.deepcopy(both) if way == "deepcopy" else pickle.loads(pickle.dumps(both))
    if order == "variable first":
        copied.reverse()
    twin, u = copied
    assert type(twin) is type(optimizer) and u is not v
    for slot in record.slots:
        mine, theirs = optimizer.get_slot(v, slot), twin.get_slot(u, slot)
        assert mine is not theirs and mine.numpy().tobytes() == theirs.numpy().tobytes()
        assert not np.shares_memory(mine._storage, theirs._storage)
        assert twin.get_slot(v, slot) is None and optimizer.get_slot(u, slot) is None
    assert continued(optimizer, v) == continued(twin, u)


@every_record()
def test_a_copy_without_its_variables_goes_on_with_the_same(record: Record) -> None:
    v = fo.Variable(np.linspace(-1, 1, 5), name="v")
    optimizer = trained(record.make(), v, steps=3)
    twin = copy.deepcopy(optimizer)
    start = v.numpy()
    end = continued(optimizer, v)
    v.assign(start)
    assert continued(twin, v) == end


def test_a_copy_with_a_callable_keeps_it() -> None:
    v = fo.Variable(np.ones(2))
    optimizer = trained(fo.MomentumOptimizer(lambda: 0.25, 0.9), v)
    twin, u = copy.deepcopy((optimizer, v))
    assert continued(optimizer, v) == continued(twin, u)


def test_a_copy_with_a_variable_for_a_rate_has_its_own() -> None:
    rate = fo.Variable(np.float64(0.5), trainable=False)
    optimizer = fo.GradientDescentOptimizer(rate)
    twin = copy.deepcopy(optimizer)
    rate.assign(0.0)
    v = fo.Variable(np.ones(2))
    twin.apply_gradients([(np.ones(2), v)])
    assert v.numpy().tolist() == [0.5, 0.5]


@pytest.mark.parametrize("way", ["copy", "pickle"])
def test_a_fresh_copy_trains_and_locks(way: str) -> None:
    optimizer = fo.AdamOptimizer(use_locking=True)
    twin = copy.deepcopy(optimizer) if way == "copy" else pickle.loads(pickle.dumps(optimizer))
    v = trained_variable = fo.Variable(np.ones(2))
    trained(twin, trained_variable)
    assert twin._use_locking and twin.get_slot(v, "m") is not None


def test_a_copy_of_a_rule_in_python() -> None:
    v = fo.Variable(np.ones(2))
    rule = Rule()
    rule._zeros_slot(v, "s", "s").assign([3.0, 4.0])
    rule._create_non_slot_variable(1.0, "n")
    twin = copy.deepcopy(rule)
    rule.get_slot(v, "s").assign([0.0, 0.0])
    assert twin.get_slot(v, "s").numpy().tolist() == [3, 4]
    assert twin._get_non_slot_variable("n") is not rule._get_non_slot_variable("n")


# ------------------------------------------------------------------ a long training


def test_steps_that_follow_from_a_restored_state_are_the_same() -> None:
    """What a checkpoint of slots and powers needs: `variables()` is all of the state."""
    a, b = fo.Variable(np.ones(3), name="a"), fo.Variable(np.ones(3), name="b")
    one, two = trained(fo.AdamOptimizer(), a, steps=5), trained(fo.AdamOptimizer(), b)
    for mine, theirs in zip(one.variables(), two.variables(), strict=True):
        theirs.assign(mine.value)
    b.assign(a.value)
    before = state_of(one, a)
    assert continued(one, a) == continued(two, b)
    assert state_of(one, a) != before


@pytest.mark.parametrize("bad", ["Descent", None, 1, np.ones(2)])
def test_locking_is_a_flag(bad: Any) -> None:
    """A name in the second place of the arguments would switch locking on without a word."""
    with pytest.raises(TypeError, match="use_locking must be True or False, got "):
        fo.GradientDescentOptimizer(0.1, bad)


def test_a_map_that_holds_itself_is_copied_once() -> None:
    key = fo.Variable(1.0)
    known: WeakIdentityMap[Any, Any] = WeakIdentityMap()
    known[key] = [known]
    copied = copy.deepcopy(known)
    assert copied[key][0] is copied is not known


def test_a_step_counter_is_not_kept_after_its_call() -> None:
    v, step = fo.Variable(np.ones(2)), fo.Variable(np.int64(0), trainable=False)
    optimizer = fo.AdamOptimizer()
    optimizer.apply_gradients([(np.ones(2), v)], global_step=step)
    gone = weakref.ref(step)
    del step
    gc.collect()
    assert gone() is None
