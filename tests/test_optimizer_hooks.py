"""Rules written by users in pure Python, through the hooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt.optimizers._kernel_optimizer import KernelOptimizer
from tests.optimizer_db import RECORDS, fresh_graph, state_of

__all__ = ["fresh_graph"]


class MyMomentum(fo.Optimizer):
    """Momentum, as somebody would write it who knows TensorFlow's hooks and NumPy."""

    def __init__(self, learning_rate: Any, momentum: float, name: str = "Mine") -> None:
        super().__init__(False, name)
        self._rate = learning_rate
        self._momentum = momentum

    def _create_slots(self, var_list: Any) -> None:
        for var in var_list:
            self._zeros_slot(var, "velocity", self._name)

    def _prepare(self) -> None:
        self._rate_now = self._call_if_callable(self._rate)

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        velocity = self.get_slot(var, "velocity")
        velocity.assign(velocity.value * self._momentum + grad)
        return var.assign_sub(velocity.value * self._rate_now)

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        velocity = self.get_slot(var, "velocity")
        rows = velocity.numpy()
        rows[grad.indices] = rows[grad.indices] * self._momentum + grad.values
        velocity.assign(rows)
        weights = var.numpy()
        weights[grad.indices] -= rows[grad.indices] * self._rate_now
        return var.assign(weights)


class Events(fo.Optimizer):
    """Write down which hooks are called."""

    def __init__(self) -> None:
        super().__init__(False, "events")
        self.events: list[Any] = []

    def _create_slots(self, var_list: Any) -> None:
        self.events.append(("create", [var.name for var in var_list]))

    def _prepare(self) -> None:
        self.events.append(("prepare",))

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        self.events.append(("dense", var.name))
        return f"dense {var.name}"

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        self.events.append(("sparse", var.name))
        return f"sparse {var.name}"

    def _finish(self, update_ops: Any, name_scope: str) -> None:
        self.events.append(("finish", list(update_ops), name_scope))


def test_the_hooks_are_called_in_order() -> None:
    a, b, c = (fo.Variable(np.ones((2, 1)), name=name) for name in "abc")
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = Events()
    slices = fo.IndexedSlices(np.ones((1, 1)), [0])
    dense = np.ones((2, 1))
    pairs = [(None, c), (slices, b), (dense, a), (dense, a)]
    expected = [
        ("create", ["b", "a", "a"]),
        ("prepare",),
        ("sparse", "b"),
        ("dense", "a"),
        ("dense", "a"),
    ]
    ops = ["sparse b", "dense a", "dense a"]
    for _ in range(2):  # every hook in every call
        optimizer.apply_gradients(pairs, global_step=step)
        assert optimizer.events == [*expected, ("finish", ops, "update")]
        optimizer.events.clear()
    optimizer.apply_gradients(pairs)
    assert optimizer.events[-1] == ("finish", ops, "events")
    optimizer.apply_gradients(pairs, name="mine")
    assert optimizer.events[-1] == ("finish", ops, "mine")


def test_an_operation_of_a_rule_in_python() -> None:
    table, bias = fo.Variable(np.ones((5, 2))), fo.Variable(np.ones(3))
    slices = fo.IndexedSlices(np.ones((3, 2)), [4, 4, 0])
    done = MyMomentum(0.1, 0.9).apply_gradients([(slices, table), (np.ones(3), bias)])
    assert (done.sparse_rows, done.dense_parameters, done.type) == (2, 3, "MyMomentum")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_rule_in_python_agrees_with_the_kernels(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    mine, theirs = MyMomentum(0.1, 0.9), fo.MomentumOptimizer(0.1, 0.9)
    start = rng.normal(size=(6, 3)).astype(dtype)
    a, b = fo.Variable(start), fo.Variable(start)
    for k in range(6):
        gradient: Any = rng.normal(size=(6, 3)).astype(dtype)
        if k % 2:
            gradient = fo.IndexedSlices(gradient, [3, 0, 3, 5, 0, 3])  # repeated rows
        mine.apply_gradients([(gradient, a)])
        theirs.apply_gradients([(gradient, b)])
    tolerance = {np.float32: 1e-5, np.float64: 1e-13}[
        dtype
    ]  # order and rounding of a few operations
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        mine.get_slot(a, "velocity").numpy(),
        theirs.get_slot(b, "momentum").numpy(),
        rtol=tolerance,
        atol=tolerance,
    )


def test_a_rule_in_python_trains_a_model_with_callables() -> None:
    table, w = fo.Variable(np.ones((4, 2)), name="table"), fo.Variable(np.ones(2), name="w")
    rates = iter([0.1] * 100)
    optimizer = MyMomentum(lambda: next(rates), 0.5)

    def loss() -> Any:
        return np.sum((fo.embedding_lookup(table, [0, 2, 2]) @ w - 3.0) ** 2)

    for _ in range(60):
        optimizer.minimize(loss)
    assert float(loss()) < 1e-6
    assert (table.numpy()[[1, 3]] == 1).all()
    assert [x.name for x in optimizer.variables()] == ["table/Mine", "w/Mine"]


def test_repeated_rows_are_summed_in_order_of_first_appearance() -> None:
    class Keeper(fo.Optimizer):
        def _apply_sparse(self, grad: Any, var: Any) -> None:
            seen.append(grad)

    seen: list[Any] = []
    v = fo.Variable(np.zeros((5, 2)))
    slices = fo.IndexedSlices(np.arange(8.0).reshape(4, 2), [3, 1, 3, 0], (5, 2))
    Keeper(False, "keeper").apply_gradients([(slices, v)])
    assert seen[0].indices.tolist() == [3, 1, 0] and seen[0].dense_shape == (5, 2)
    assert seen[0].values.tolist() == [[4, 6], [2, 3], [6, 7]]
    assert slices.values.tolist() == np.arange(8.0).reshape(4, 2).tolist()


def test_the_hook_for_repeated_rows_gets_them_as_they_are() -> None:
    class Keeper(fo.Optimizer):
        def _apply_sparse_duplicate_indices(self, grad: Any, var: Any) -> None:
            seen.append(grad.indices.tolist())

    seen: list[Any] = []
    v = fo.Variable(np.zeros((5, 2)))
    Keeper(False, "keeper").apply_gradients([(fo.IndexedSlices(np.ones((2, 2)), [3, 3]), v)])
    assert seen == [[3, 3]]


class Resource(fo.Optimizer):
    """The hooks as TensorFlow 2's custom optimizers name them."""

    def __init__(self) -> None:
        super().__init__(False, "resource")
        self.seen: list[Any] = []

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        self.seen.append(("dense", grad.tolist()))
        return var.assign_sub(grad)

    def _resource_apply_sparse(
        self, grad: Any, var: Any, indices: Any, apply_state: Any = None
    ) -> Any:
        self.seen.append(("sparse", grad.tolist(), indices.tolist()))

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        raise AssertionError("the other name goes first")

    _apply_sparse = _apply_dense


def test_hooks_of_tensorflow_2_are_called_and_go_first() -> None:
    v = fo.Variable(np.zeros((2, 1)))
    optimizer = Resource()
    slices = fo.IndexedSlices([[1.0], [2.0]], [1, 1])
    done = optimizer.apply_gradients([(np.ones((2, 1)), v), (slices, v)])
    assert optimizer.seen == [("dense", [[1.0], [1.0]]), ("sparse", [[3.0]], [1])]
    assert v.numpy().tolist() == [[-1.0], [-1.0]] and done.sparse_rows == 1


def test_a_hook_of_tensorflow_2_for_repeated_rows() -> None:
    class Keeper(fo.Optimizer):
        def _resource_apply_sparse_duplicate_indices(
            self, grad: Any, var: Any, indices: Any
        ) -> None:
            seen.append((grad.tolist(), indices.tolist()))

    seen: list[Any] = []
    v = fo.Variable(np.zeros((2, 1)))
    slices = fo.IndexedSlices(np.array([[1.0], [2.0]]), [1, 1])
    Keeper(False, "keeper").apply_gradients([(slices, v)])
    assert seen == [([[1.0], [2.0]], [1, 1])]


def test_calling_up_from_a_hook_of_tensorflow_2_reaches_the_other_name() -> None:
    class Up(Events):
        def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
            return super()._resource_apply_dense(grad, var)

        def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
            return super()._resource_apply_sparse(grad, var, indices)

    v = fo.Variable(np.zeros((2, 1)), name="v")
    optimizer = Up()
    optimizer.apply_gradients([(np.ones((2, 1)), v), (fo.IndexedSlices([[1.0]], [1]), v)])
    assert optimizer.events[2:4] == [("dense", "v"), ("sparse", "v")]


@pytest.mark.parametrize("gradient", [np.ones((2, 1)), fo.IndexedSlices(np.ones((1, 1)), [0])])
def test_the_base_class_can_do_nothing_and_says_which_hook(gradient: Any) -> None:
    optimizer = fo.Optimizer(False, "base")
    v = fo.Variable(np.ones((2, 1)))
    with pytest.raises(NotImplementedError, match="Optimizer doesn't implement _apply_"):
        optimizer.apply_gradients([(gradient, v)])
    assert optimizer.get_name() == "base" and repr(optimizer) == "<Optimizer 'base'>"


# ------------------------------------------------------------------ when a hook fails


def test_a_hook_that_fails_at_first_leaves_no_slots_and_no_names() -> None:
    class Broken(MyMomentum):
        def _apply_dense(self, grad: Any, var: Any) -> Any:
            if broken:
                raise ZeroDivisionError("mine")
            return super()._apply_dense(grad, var)

    broken = True
    v = fo.Variable(np.ones(2), name="v")
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = Broken(0.1, 0.9)
    before = state_of(optimizer, v, step)
    with pytest.raises(ZeroDivisionError):
        optimizer.apply_gradients([(np.ones(2), v)], step)
    assert state_of(optimizer, v, step) == before
    broken = False
    optimizer.apply_gradients([(np.ones(2), v)], step)
    assert [x.name for x in optimizer.variables()] == ["v/Mine"] and step.numpy() == 1


def test_a_hook_that_fails_later_leaves_what_was_done_and_does_not_count() -> None:
    class Broken(MyMomentum):
        def _apply_dense(self, grad: Any, var: Any) -> Any:
            if var is w:
                raise ZeroDivisionError("mine")
            return super()._apply_dense(grad, var)

    v, w = fo.Variable(np.ones(2), name="v"), fo.Variable(np.ones(2), name="w")
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = Broken(1.0, 0.9)
    with pytest.raises(ZeroDivisionError):
        optimizer.apply_gradients([(np.ones(2), v), (np.ones(2), w)], step)
    assert v.numpy().tolist() == [0, 0] and w.numpy().tolist() == [1, 1]
    assert optimizer.get_slot(v, "velocity").numpy().tolist() == [1, 1]
    assert step.numpy() == 0


def test_what_fails_in_creating_or_preparing_leaves_nothing() -> None:
    class Broken(MyMomentum):
        def _create_slots(self, var_list: Any) -> None:
            super()._create_slots(var_list)
            self._create_non_slot_variable(1.0, "count", var_list[0])
            if fails_in == "create":
                raise ZeroDivisionError("mine")

        def _prepare(self) -> None:
            if fails_in == "prepare":
                raise ZeroDivisionError("mine")
            super()._prepare()

    v = fo.Variable(np.ones(2), name="v")
    optimizer = Broken(1.0, 0.9)
    before = state_of(optimizer, v)
    for where in ("create", "prepare"):
        fails_in = where
        with pytest.raises(ZeroDivisionError):
            optimizer.apply_gradients([(np.ones(2), v)])
        assert state_of(optimizer, v) == before
    fails_in = ""
    optimizer.apply_gradients([(np.ones(2), v)])
    assert [x.name for x in optimizer.variables()] == ["count", "v/Mine"]


# ------------------------------------------------------------------ changing a rule of the kernels


def test_a_class_of_ours_may_have_a_hook_replaced() -> None:
    class Clipped(fo.MomentumOptimizer):
        def _apply_dense(self, grad: Any, var: Any) -> Any:
            return super()._apply_dense(np.clip(grad, -1.0, 1.0), var)

        def _apply_sparse(self, grad: Any, var: Any) -> Any:
            seen.append(grad.indices.tolist())
            return super()._apply_sparse(grad, var)

    seen: list[Any] = []
    v, w = fo.Variable(np.zeros(2)), fo.Variable(np.zeros((3, 1)))
    a, b = fo.Variable(np.zeros(2)), fo.Variable(np.zeros((3, 1)))
    clipped, plain = Clipped(1.0, 0.5), fo.MomentumOptimizer(1.0, 0.5)
    slices = fo.IndexedSlices(np.ones((3, 1)), [2, 0, 2])
    for _ in range(2):
        clipped.apply_gradients([(np.array([5.0, -0.5]), v), (slices, w)])
        plain.apply_gradients([(np.array([1.0, -0.5]), a), (slices, b)])
    assert v.numpy().tolist() == a.numpy().tolist()
    assert w.numpy().tolist() == b.numpy().tolist()
    assert seen == [[2, 0], [2, 0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_hooks_of_ours_called_one_by_one_give_the_same_bits(dtype: Any) -> None:
    rng = np.random.default_rng(7)
    for record in RECORDS:

        class OneByOne(record.cls):  # type: ignore[name-defined, misc]
            def _apply_dense(self, grad: Any, var: Any) -> Any:
                return super()._apply_dense(grad, var)

        one, all_ = OneByOne(**record.required), record.make()
        starts = rng.normal(size=(5, 2)).astype(dtype), rng.normal(size=3).astype(dtype)
        mine = [fo.Variable(x) for x in starts]
        theirs = [fo.Variable(x) for x in starts]
        for _ in range(3):
            values = rng.normal(size=(4, 2)).astype(dtype)
            gradients = [fo.IndexedSlices(values, [4, 1, 4, 4]), rng.normal(size=3).astype(dtype)]
            one.apply_gradients(list(zip(gradients, mine, strict=True)))
            all_.apply_gradients(list(zip(gradients, theirs, strict=True)))
        for a, b in zip(mine, theirs, strict=True):
            assert a.numpy().tobytes() == b.numpy().tobytes(), record.id


def test_prepare_and_finish_of_a_subclass_are_called_in_every_step() -> None:
    class Halving(fo.AdamOptimizer):
        def _prepare(self) -> None:
            events.append("prepare")
            super()._prepare()

        def _finish(self, update_ops: Any, name_scope: str) -> None:
            events.append((len(update_ops), name_scope))
            super()._finish(update_ops, name_scope)

    events: list[Any] = []
    v = fo.Variable(np.ones(2))
    optimizer = Halving()
    for _ in range(3):
        optimizer.apply_gradients([(np.ones(2), v), (np.ones(2), v)], name="x")
    assert events == ["prepare", (2, "x")] * 3
    assert optimizer._get_non_slot_variable("beta1_power").numpy() == pytest.approx(0.9**4)


def test_a_subclass_may_stand_between_the_call_and_the_update() -> None:
    class Doubling(fo.GradientDescentOptimizer):
        def _apply_once(self, pairs: Any, global_step: Any, name: Any) -> Any:
            return super()._apply_once([(2 * g, var) for g, var in pairs], global_step, name)

    v = fo.Variable(np.ones(2))
    optimizer = Doubling(0.25)
    for _ in range(3):
        optimizer.apply_gradients([(np.ones(2), v)])
    assert v.numpy().tolist() == [-0.5, -0.5]


def test_slots_of_a_subclass_are_made_in_every_call() -> None:
    class Counting(fo.GradientDescentOptimizer):
        def _create_slots(self, var_list: Any) -> None:
            super()._create_slots(var_list)
            for var in var_list:
                self._zeros_slot(var, "seen", self._name).assign_add(np.ones(2))

    v = fo.Variable(np.ones(2))
    optimizer = Counting(0.1)
    for _ in range(3):
        optimizer.apply_gradients([(np.ones(2), v)])
    assert optimizer.get_slot(v, "seen").numpy().tolist() == [3, 3]


def test_a_rule_of_the_kernels_must_be_named() -> None:
    class Nameless(KernelOptimizer):
        pass

    with pytest.raises(NotImplementedError, match="Nameless doesn't name its rule"):
        Nameless(False, "nameless")
    with pytest.raises(NotImplementedError, match="FtrlOptimizer doesn't give the scalars"):
        KernelOptimizer._scalars(fo.FtrlOptimizer(0.1), {}, fo.get_default_graph())
