"""`apply_gradients`: what it takes, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fastopt as fo
from fastopt._pairs import Memory
from tests.optimizer_db import Record, every_record, fresh_graph, state_of

__all__ = ["fresh_graph"]


def sgd(rate: float = 1.0, **kwargs: Any) -> Any:
    return fo.GradientDescentOptimizer(rate, **kwargs)


# ------------------------------------------------------------------ the list of pairs


def test_any_iterable_of_pairs_will_do() -> None:
    kinds: list[Callable[[list[Any]], Any]] = [
        list,
        tuple,
        iter,
        lambda pairs: (pair for pair in pairs),
        lambda pairs: zip(*zip(*pairs, strict=True), strict=True),
        lambda pairs: [list(pair) for pair in pairs],
        lambda pairs: dict(enumerate(pairs)).values(),
    ]
    for kind in kinds:
        v, w = fo.Variable(np.zeros(2)), fo.Variable(np.zeros(3))
        optimizer = sgd()
        for step in (1, 2):
            optimizer.apply_gradients(kind([(np.ones(2), v), (np.full(3, 2.0), w)]))
            assert (v.numpy() == -step).all() and (w.numpy() == -2 * step).all()


@pytest.mark.parametrize("argument", [None, 5, 1.5, object(), sgd])
def test_what_is_no_iterable_is_refused(argument: Any) -> None:
    with pytest.raises(TypeError, match=r"grads_and_vars must be an iterable of \(gradient, var"):
        sgd().apply_gradients(argument)


def test_a_single_thing_is_no_list_of_pairs() -> None:
    v = fo.Variable(np.ones(2))
    for argument in (v, np.ones(2), fo.IndexedSlices([1.0], [0]), "gv", b"gv"):
        with pytest.raises(TypeError, match="must be an iterable of"):
            sgd().apply_gradients(argument)


def test_what_the_callers_iterator_raises_comes_through() -> None:
    def pairs() -> Iterator[Any]:
        yield np.ones(2), v
        raise TypeError("mine")

    v = fo.Variable(np.ones(2))
    with pytest.raises(TypeError, match="^mine$"):
        sgd().apply_gradients(pairs())
    assert (v.numpy() == 1).all()


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^No variables provided: grads_and_vars is empty\.$"):
        sgd().apply_gradients([])


def test_an_exhausted_iterator_gets_a_hint() -> None:
    v = fo.Variable(np.ones(2))
    pairs = zip([np.ones(2)], [v], strict=True)
    list(pairs)
    with pytest.raises(ValueError, match=r"^No variables provided.*The zip .* pass a list"):
        sgd().apply_gradients(pairs)


def test_a_pair_is_a_tuple_or_list_of_two() -> None:
    v = fo.Variable(np.ones(2), name="v")
    # A variable or an array of two elements could be unpacked, into two numbers.
    for bad in (v, np.ones(2), "gv", 3, None, {0: 1, 1: 2}):
        with pytest.raises(TypeError, match=r"grads_and_vars\[1\] must be a \(gradient, variable"):
            sgd().apply_gradients([(np.ones(2), v), bad])
    for wrong in ((np.ones(2),), (np.ones(2), v, v), ()):
        with pytest.raises(ValueError, match=rf"grads_and_vars\[1\] .* got {len(wrong)} items"):
            sgd().apply_gradients([(np.ones(2), v), wrong])
    assert (v.numpy() == 1).all()


def test_a_pair_the_wrong_way_round_gets_a_hint() -> None:
    v = fo.Variable(np.ones(2))
    with pytest.raises(TypeError, match=r"a pair is \(gradient, variable\), in this order"):
        sgd().apply_gradients([(v, np.ones(2))])


def test_a_pytorch_parameter_in_the_place_of_a_variable_gets_a_hint() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"Parameter; fo.Variable\(tensor.detach\(\), copy=False\)"):
        sgd().apply_gradients([(np.ones(2), torch.nn.Parameter(torch.ones(2)))])


def test_an_array_in_the_place_of_a_variable_gets_a_hint() -> None:
    with pytest.raises(
        TypeError, match=r"got \[0.0\] of type list; fo.Variable\(value\) makes one"
    ):
        sgd().apply_gradients([(np.ones(1), [0.0])])
    with pytest.raises(AttributeError, match=r"must be a fastopt Variable.*copy=False"):
        sgd().apply_gradients([(np.ones(2), np.ones(2))])
    with pytest.raises(TypeError, match=r"grads_and_vars\[0\].* got None"):
        sgd().apply_gradients([(np.ones(2), None)])


def test_a_tensor_cannot_be_updated() -> None:
    v, t = fo.Variable(np.ones(2)), fo.Tensor([1.0, 2.0])
    with pytest.raises(NotImplementedError, match=r"cannot update Tensor\("):
        sgd().apply_gradients([(np.ones(2), v), (np.ones(2), t)])
    assert (v.numpy() == 1).all()
    sgd().apply_gradients([(np.ones(2), v), (None, t)])  # nothing asked of it
    assert (v.numpy() == 0).all()


# ------------------------------------------------------------------ gradients that are None


def test_variables_without_a_gradient_are_left_alone() -> None:
    v, w = fo.Variable(np.ones(2), name="v"), fo.Variable(np.ones(2), name="w")
    optimizer = fo.MomentumOptimizer(1.0, 0.9)
    done = optimizer.apply_gradients([(None, v), (np.ones(2), w)])
    assert (v.numpy() == 1).all() and (w.numpy() == 0).all()
    assert optimizer.get_slot(v, "momentum") is None
    assert done.variables == (w,)


def test_no_gradient_at_all_is_refused_by_name() -> None:
    v, w = fo.Variable(np.ones(2), name="v"), fo.Variable(np.ones(2), name="w")
    step = fo.Variable(np.int64(0), trainable=False)
    with pytest.raises(
        ValueError, match=r"^No gradients provided for any variable: \['v', 'w'\]\. .*depend"
    ):
        sgd().apply_gradients([(None, v), (None, w)], global_step=step)
    assert step.numpy() == 0


# ------------------------------------------------------------------ kinds of gradients


class Subclass(np.ndarray):
    """An array of somebody's own type."""


def dense_gradients() -> dict[str, Any]:
    g = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    strided = np.zeros((3, 4))[:, ::2]
    strided[...] = g
    misaligned = np.zeros(g.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(3, 2)
    misaligned[...] = g
    read_only = g.copy()
    read_only.flags.writeable = False
    return {
        "array": g,
        "list": g.tolist(),
        "float32": g.astype(np.float32),
        "float16": g.astype(np.float16),
        "integers": g.astype(np.int32),
        "fortran": np.asfortranarray(g),
        "strided": strided,
        "swapped": g.astype(">f8"),
        "misaligned": misaligned,
        "read-only": read_only,
        "subclass": g.view(Subclass),
        "variable": fo.Variable(g),
        "tensor": fo.Tensor(g),
        "csr": scipy.sparse.csr_array(g),
        "coo matrix": scipy.sparse.coo_matrix(g),
        "slices": fo.IndexedSlices(g[::-1], [2, 1, 0]),
        "slices with shape": fo.IndexedSlices(g, np.arange(3, dtype=np.int32), (3, 2)),
        "buffer": memoryview(g),
    }


@pytest.mark.parametrize("kind", dense_gradients())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_kind_of_gradient_means_the_same(kind: str, dtype: Any) -> None:
    v = fo.Variable(np.zeros((3, 2), dtype))
    optimizer = sgd()
    for step in (1, 2):
        gradient = dense_gradients()[kind]
        optimizer.apply_gradients([(gradient, v)])
        assert (v.numpy() == -step * np.arange(1, 7).reshape(3, 2)).all()
    assert v.dtype == dtype


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_gradients_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    v = fo.Variable(np.zeros((3, 2), np.float32))
    dense = torch.arange(6, dtype=torch.float32).reshape(3, 2)
    for gradient in (dense, dense.to_sparse(), dense.to_sparse_csr()):
        v.assign(np.zeros((3, 2), np.float32))
        sgd().apply_gradients([(gradient, v)])
        assert v.numpy().tolist() == [[0, -1], [-2, -3], [-4, -5]]


@pytest.mark.parametrize("gradient", ["text", object(), [1.0, [2.0]], 1j, np.array([None, 1.0])])
def test_what_cannot_be_a_gradient_is_refused(gradient: Any) -> None:
    v, w = fo.Variable(np.ones(2), name="v"), fo.Variable(np.ones(2), name="w")
    with pytest.raises(TypeError, match="the gradient of variable 'w'"):
        sgd().apply_gradients([(np.ones(2), v), (gradient, w)])
    assert (v.numpy() == 1).all()


def test_nothing_is_broadcast() -> None:
    v = fo.Variable(np.ones((2, 3)), name="v")
    for shape in ((), (1,), (3,), (1, 3), (2, 1), (3, 2), (2, 3, 1), (6,)):
        both = re.escape(f"'v' has shape {shape}, its variable has shape (2, 3)")
        with pytest.raises(ValueError, match=both):
            sgd().apply_gradients([(np.ones(shape), v)])
    assert (v.numpy() == 1).all()


def test_an_integer_variable_is_refused_by_name() -> None:
    v = fo.Variable(np.ones(2), name="v")
    n = fo.Variable(np.array([1, 2]), name="n")
    with pytest.raises(ValueError, match="Invalid type int64 for 'n'.*; give it dtype"):
        sgd().apply_gradients([(np.ones(2), v), (np.ones(2), n)])
    assert (v.numpy() == 1).all() and n.numpy().tolist() == [1, 2]


# ------------------------------------------------------------------ memory


def test_a_gradient_that_is_the_variable_is_read_before_it_changes() -> None:
    storage = np.array([2.0, 4.0])
    v = fo.Variable(storage, copy=False, name="v")
    optimizer = sgd(0.25)
    for _ in range(2):
        optimizer.apply_gradients([(storage, v)])
    assert v.numpy().tolist() == [2 * 0.75**2, 4 * 0.75**2]


@pytest.mark.parametrize("shape", [(4,), (4, 2)])
def test_gradients_that_are_variables_of_the_call(shape: tuple[int, ...]) -> None:
    a, b = fo.Variable(np.full(shape, 1.0)), fo.Variable(np.full(shape, 10.0))
    sgd().apply_gradients([(b.value, a), (a.value, b)])
    assert (a.numpy() == -9).all() and (b.numpy() == 9).all()
    sgd().apply_gradients([(b, a), (a, b)])
    assert (a.numpy() == -18).all() and (b.numpy() == 18).all()


def test_a_gradient_that_overlaps_the_variable_in_part() -> None:
    memory = np.arange(6.0)
    v = fo.Variable(memory[:4], copy=False)
    sgd().apply_gradients([(memory[1:5], v)])
    assert memory.tolist() == [-1, -1, -1, -1, 4, 5]


def test_slices_whose_values_are_rows_of_the_variable() -> None:
    memory = np.arange(8.0).reshape(4, 2)
    v = fo.Variable(memory, copy=False)
    sgd().apply_gradients([(fo.IndexedSlices(memory[:2], [1, 2]), v)])
    assert memory.tolist() == [[0, 1], [2, 2], [2, 2], [6, 7]]


def test_a_gradient_that_is_a_slot() -> None:
    v = fo.Variable(np.zeros(2))
    optimizer = fo.MomentumOptimizer(1.0, 1.0)
    optimizer.apply_gradients([(np.ones(2), v)])
    slot = optimizer.get_slot(v, "momentum").value
    optimizer.apply_gradients([(slot, v)])
    assert slot.tolist() == [2, 2] and v.numpy().tolist() == [-3, -3]


def test_variables_that_share_memory_are_refused_by_name() -> None:
    memory = np.zeros(6)
    a = fo.Variable(memory[:4], copy=False, name="a")
    b = fo.Variable(memory[3:], copy=False, name="b")
    c = fo.Variable(memory[4:], copy=False, name="c")
    with pytest.raises(ValueError, match="variables 'a' and 'b' share memory"):
        sgd().apply_gradients([(np.ones(4), a), (np.ones(3), b)])
    assert not memory.any()
    sgd().apply_gradients([(np.ones(4), a), (np.ones(2), c)])
    assert (memory == -1).all()


def test_empty_variables_share_no_memory() -> None:
    memory = np.zeros((0, 3))
    a, b = (fo.Variable(memory, copy=False) for _ in range(2))
    sgd().apply_gradients([(memory, a), (memory, b), (np.ones((0, 3)), a)])


def test_a_read_only_variable_is_refused_by_name() -> None:
    v, w = fo.Variable(np.ones(2), name="v"), fo.Variable(np.ones(2), name="w")
    w._storage.flags.writeable = False
    with pytest.raises(
        ValueError, match="variable 'w' cannot be updated: its storage is read-only"
    ):
        sgd().apply_gradients([(np.ones(2), v), (np.ones(2), w)])
    assert (v.numpy() == 1).all()


def test_where_arrays_lie() -> None:
    memory = np.zeros((4, 6))
    a = fo.Variable(memory[1], copy=False)
    lies = Memory([a])
    assert lies.overlaps(memory[1]) and lies.overlaps(memory[0:2]) and lies.overlaps(memory[:, ::5])
    assert not lies.overlaps(memory[0]) and not lies.overlaps(memory[2])
    assert not lies.overlaps(memory[1, :0])
    lies.add([fo.Variable(memory[3], copy=False)])
    assert lies.overlaps(memory[3]) and not lies.overlaps(memory[2])


# ------------------------------------------------------------------ a variable listed twice


def test_a_variable_listed_twice_is_updated_twice_in_order() -> None:
    v = fo.Variable(np.zeros(2))
    sgd(0.1).apply_gradients([(np.full(2, 1.0), v), (np.full(2, 2.0), v)])
    np.testing.assert_allclose(v.numpy(), -0.3)
    w = fo.Variable(np.zeros(2))
    momentum = fo.MomentumOptimizer(1.0, 0.9)
    done = momentum.apply_gradients([(np.full(2, 1.0), w), (np.full(2, 2.0), w)])
    np.testing.assert_allclose(momentum.get_slot(w, "momentum").numpy(), 2.9)
    assert done.variables == (w, w) and done.dense_parameters == 4


@every_record()
def test_twice_in_one_call_is_two_calls_but_for_what_counts_calls(record: Record) -> None:
    a, b = fo.Variable(np.ones((3, 2))), fo.Variable(np.ones((3, 2)))
    other = fo.Variable(np.ones(2))
    dense, slices = np.full((3, 2), 0.5), fo.IndexedSlices(np.ones((2, 2)), [2, 2])
    together, apart = record.make(), record.make()
    together.apply_gradients([(dense, a), (np.ones(2), other), (slices, a), (dense, a)])
    if record.counts_calls:  # as one call does
        apart.apply_gradients([(dense, b)])
        counters = [
            [var.numpy() for var in optimizer._non_slot_variables()]
            for optimizer in (together, apart)
        ]
        assert counters[0] and counters[0] == counters[1]
        return
    for gradient in (dense, slices, dense):
        apart.apply_gradients([(gradient, b)])
    assert a.numpy().tobytes() == b.numpy().tobytes()


# ------------------------------------------------------------------ the step counter


@pytest.mark.parametrize(
    "dtype", [np.int64, np.int32, np.uint8, np.float32, np.float64, np.float16]
)
def test_the_step_counter_may_be_any_number(dtype: Any) -> None:
    v, step = fo.Variable(np.ones(2)), fo.Variable(dtype(5), trainable=False)
    for optimizer in (sgd(), fo.AdamOptimizer()):
        done = optimizer.apply_gradients([(np.ones(2), v), (np.ones(2), v)], global_step=step)
        done = optimizer.apply_gradients([(np.ones(2), v)], step)
    assert step.numpy() == 9 and step.dtype == dtype and done.step == 9


def test_the_version_of_the_counter_and_of_the_variables_moves() -> None:
    v, step = fo.Variable(np.ones(2)), fo.Variable(np.int64(0), trainable=False)
    optimizer = sgd()
    for _ in range(2):
        before = v._version, step._version
        optimizer.apply_gradients([(np.ones(2), v)], step)
        assert v._version > before[0] and step._version > before[1]


@pytest.mark.parametrize("bad", [5, 1.5, np.array(0), "step", object()])
def test_what_cannot_count_steps_is_refused_before_anything_changes(bad: Any) -> None:
    v = fo.Variable(np.ones(2), name="v")
    optimizer = fo.AdamOptimizer()
    for _ in range(2):  # the long way, and the short way
        before = state_of(optimizer, v)
        with pytest.raises(AttributeError, match="global_step must be a fastopt Variable"):
            optimizer.apply_gradients([(np.ones(2), v)], global_step=bad)
        with pytest.raises(TypeError, match="global_step must be a fastopt Variable"):
            optimizer.minimize(lambda: np.sum(v * v), bad)
        with pytest.raises(TypeError, match="variables to train are passed as var_list="):
            optimizer.minimize(lambda: np.sum(v * v), [v])
        assert state_of(optimizer, v) == before
        optimizer.apply_gradients([(np.ones(2), v)])


def test_a_counter_that_is_no_scalar_number_is_refused_by_name() -> None:
    v = fo.Variable(np.ones(2))
    vector = fo.Variable(np.zeros(1), name="vector")
    flag = fo.Variable(np.array(True), name="flag")
    fixed = fo.Variable(np.int64(0), name="fixed")
    fixed._storage.flags.writeable = False
    optimizer = sgd()
    optimizer.apply_gradients([(np.ones(2), v)])
    for bad, text in (
        (vector, r"'vector' must be a scalar, its shape is \(1,\); .* var_list="),
        (flag, "'flag' must be a number, its dtype is bool"),
        (fixed, "'fixed' cannot be advanced: its storage is read-only"),
    ):
        with pytest.raises(ValueError, match=text):
            optimizer.apply_gradients([(np.ones(2), v)], global_step=bad)
    assert (v.numpy() == 0).all()


LAST = [
    (dtype, np.iinfo(dtype).max)
    for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")
] + [("float16", 2048.0), ("float32", 2.0**24), ("float64", 2.0**53), ("float64", np.inf)]


@pytest.mark.parametrize(("dtype", "last"), LAST)
@pytest.mark.parametrize("gate", [fo.Optimizer.GATE_OP, fo.Optimizer.GATE_NONE])
def test_a_counter_at_the_end_of_its_dtype_is_refused(dtype: str, last: Any, gate: int) -> None:
    v = fo.Variable(np.ones(2), name="v")
    steps = fo.Variable(np.array(0, dtype), trainable=False, name="steps")
    optimizer = fo.AdamOptimizer()
    for _ in range(2):  # the long way, and the short way
        steps.assign(np.array(last, dtype))
        before = state_of(optimizer, v, steps)
        with pytest.raises(OverflowError, match=rf"'steps' cannot count beyond {last} in {dtype}"):
            optimizer.minimize(lambda: np.sum(v * v), steps, gate_gradients=gate)
        assert state_of(optimizer, v, steps) == before
        steps.assign(np.array(last - 1 if np.isfinite(last) else 7, dtype))
        done = optimizer.minimize(lambda: np.sum(v * v), steps, gate_gradients=gate)
        assert done.step == steps.numpy() == (last if np.isfinite(last) else 8)


# ------------------------------------------------------------------ constraints


def test_a_constraint_holds_after_each_dense_update() -> None:
    v = fo.Variable(np.array([0.5, -0.5]), constraint=lambda x: np.clip(x, -1.0, 1.0))
    optimizer = sgd()
    for _ in range(2):
        optimizer.apply_gradients([(np.array([3.0, 0.25]), v)])
    assert v.numpy().tolist() == [-1.0, -1.0]
    optimizer.apply_gradients([(np.array([-9.0, 0.0]), v), (np.array([0.5, 0.0]), v)])
    assert v.numpy()[0] == 0.5  # clipped to 1 between the two


def test_a_constraint_refuses_a_sparse_gradient_by_name() -> None:
    v = fo.Variable(np.ones((3, 2)), name="v")
    c = fo.Variable(np.ones((3, 2)), name="c", constraint=lambda x: x * 1.0)
    slices = fo.IndexedSlices(np.ones((1, 2)), [0])
    optimizer = sgd()
    for _ in range(2):
        before = state_of(optimizer, v, c)
        with pytest.raises(RuntimeError, match="variable 'c' has a constraint.* sparse gradient"):
            optimizer.apply_gradients([(slices, v), (slices, c)])
        assert state_of(optimizer, v, c) == before
        optimizer.apply_gradients([(slices, v), (np.zeros((3, 2)), c)])


# ------------------------------------------------------------------ what is returned


def test_the_operation_says_what_was_done() -> None:
    table = fo.Variable(np.zeros((10, 2)), name="table")
    bias = fo.Variable(np.zeros(3), name="bias")
    step = fo.Variable(np.int64(0), trainable=False)
    slices = fo.IndexedSlices(np.ones((4, 2)), [1, 5, 1, 9])
    optimizer = sgd()
    for _ in range(2):
        done = optimizer.apply_gradients([(slices, table), (np.ones(3), bias)], step, name="train")
    assert isinstance(done, fo.Operation)
    assert (done.name, done.type) == ("train", "GradientDescentOptimizer")
    assert (done.sparse_rows, done.dense_parameters, done.step) == (3, 3, 2)
    assert done.variables == (table, bias)
    assert repr(done) == (
        "<Operation 'train' GradientDescentOptimizer: 2 variables, 3 dense parameters, 3 sparse"
        " rows, step 2>"
    )


def test_a_call_without_a_name_has_the_optimizers() -> None:
    v = fo.Variable(np.ones(2))
    done = sgd(name="mine").apply_gradients([(np.ones(2), v)])
    assert done.name == "mine" and done.step is None
    assert (
        repr(done) == "<Operation 'mine' GradientDescentOptimizer: 1 variable, 2 dense parameters>"
    )


def test_an_operation_keeps_no_variable_alive() -> None:
    v = fo.Variable(np.ones(2))
    done = sgd().apply_gradients([(np.ones(2), v)])
    gone = weakref.ref(v)
    del v
    gc.collect()
    assert gone() is None and done.variables == ()


def test_train_operations_are_collected_and_do_not_pile_up(fresh_graph: Any) -> None:
    v = fo.Variable(np.ones(2))
    optimizer = sgd()
    for _ in range(5):
        done = optimizer.apply_gradients([(np.ones(2), v)])
    other = sgd().apply_gradients([(np.ones(2), v)], name="other")
    assert fresh_graph.get_collection(fo.GraphKeys.TRAIN_OP) == [done, other]


def test_in_eager_mode_there_is_an_operation_but_no_collection(fresh_graph: Any) -> None:
    v = fo.Variable(np.ones(2))
    with fo.eager_mode():
        done = sgd().apply_gradients([(np.ones(2), v)])
    assert isinstance(done, fo.Operation)
    assert fresh_graph.get_collection(fo.GraphKeys.TRAIN_OP) == []


# ------------------------------------------------------------------ the short way


def test_the_short_way_is_taken_and_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = sgd()
    v, w = fo.Variable(np.zeros(2)), fo.Variable(np.zeros((3, 1)))
    pairs = [(np.ones(2), v), (fo.IndexedSlices(np.ones((1, 1)), [2]), w)]
    optimizer.apply_gradients(pairs)

    def long_way(*_: Any) -> Any:
        raise AssertionError("took the long way")

    monkeypatch.setattr(optimizer, "_make_ready", long_way)
    optimizer.apply_gradients(pairs)
    assert v.numpy().tolist() == [-2, -2] and w.numpy().ravel().tolist() == [0, 0, -2]


def test_a_kept_plan_serves_what_must_be_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = fo.AdamOptimizer()
    v, w = fo.Variable(np.zeros(2)), fo.Variable(np.zeros(3, np.float32))
    good = [(np.ones(2), v), (np.ones(3, np.float32), w)]
    optimizer.apply_gradients(good)

    def checks(*_: Any) -> Any:
        raise AssertionError("checked the variables again")

    monkeypatch.setattr(optimizer, "_require_updatable", checks)
    optimizer.apply_gradients([list(pair) for pair in good])
    optimizer.apply_gradients([good[0], (None, fo.Variable(0.0)), (np.ones(3), w)])
    optimizer.apply_gradients(pair for pair in good)
    assert optimizer._get_non_slot_variable("beta1_power").numpy() == pytest.approx(0.9**5)
    with pytest.raises(TypeError, match="global_step"):
        optimizer.apply_gradients([good[0], (np.ones(3), w)], global_step=0)
    optimizer.apply_gradients(good)
    assert sum(len(waiting) for waiting in optimizer._plans.values()) == 1


def test_gradients_that_pass_the_checks_but_not_the_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refuses:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def bind(self, pairs: Any) -> bool:
            return False

    v = fo.Variable(np.ones(2), name="v")
    monkeypatch.setattr("fastopt.optimizers._kernel_optimizer.Plan", Refuses)
    optimizer = fo.MomentumOptimizer(1.0, 0.9)
    before = state_of(optimizer, v)
    with pytest.raises(RuntimeError, match="please report this.*float64.*\\(2,\\)"):
        optimizer.apply_gradients([(np.ones(2), v)])
    assert state_of(optimizer, v) == before


def test_lists_of_variables_that_begin_alike_have_their_own_plans() -> None:
    optimizer = fo.MomentumOptimizer(1.0, 0.5)
    a, b, c = (fo.Variable(np.zeros(2)) for _ in range(3))
    one = np.ones(2)
    for _ in range(3):
        optimizer.apply_gradients([(one, a), (one, b)])
        optimizer.apply_gradients([(one, a), (one, c)])
    assert b.numpy().tobytes() == c.numpy().tobytes()
    assert sum(len(waiting) for waiting in optimizer._plans.values()) == 2


def test_plans_that_do_not_fit_do_not_pile_up() -> None:
    optimizer = sgd()
    first = fo.Variable(np.zeros(2))
    others = [fo.Variable(np.zeros(2)) for _ in range(40)]
    for other in others:
        optimizer.apply_gradients([(np.ones(2), first), (np.ones(2), other)])
    assert sum(len(waiting) for waiting in optimizer._plans.values()) <= 17


def test_the_kind_of_a_gradient_may_change_from_call_to_call() -> None:
    v = fo.Variable(np.zeros((2, 1)))
    optimizer = sgd()
    for gradient in (
        np.ones((2, 1)),
        fo.IndexedSlices(np.ones((1, 1)), [0]),
        [[1.0], [1.0]],
        fo.IndexedSlices(np.ones((1, 1), np.float32), [1]),
        np.ones((2, 1), np.float32),
    ):
        optimizer.apply_gradients([(gradient, v)])
    assert v.numpy().tolist() == [[-4.0], [-4.0]]


def test_a_dropped_variable_takes_its_plan_and_slots_along() -> None:
    optimizer = fo.AdamOptimizer()
    keep, drop = fo.Variable(np.ones(2)), fo.Variable(np.ones(2))
    storage = weakref.ref(drop._storage)
    optimizer.apply_gradients([(np.ones(2), keep), (np.ones(2), drop)])
    optimizer.apply_gradients([(np.ones(2), keep)])
    slot = weakref.ref(optimizer.get_slot(drop, "m"))
    del drop
    gc.collect()
    assert storage() is None and slot() is None
    assert [len(waiting) for waiting in optimizer._plans.values()] == [1]
    optimizer.apply_gradients([(np.ones(2), keep)])


def test_a_dropped_optimizer_frees_its_slots_at_once() -> None:
    v = fo.Variable(np.ones(2))
    optimizer = fo.AdamOptimizer()
    optimizer.apply_gradients([(np.ones(2), v)])
    slot = weakref.ref(optimizer.get_slot(v, "m"))
    gc.disable()
    try:
        del optimizer
        assert slot() is None
    finally:
        gc.enable()
