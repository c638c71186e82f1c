"""`minimize`: both halves in one call, and what the gates mean there."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._kernels.rules import RULES
from tests.optimizer_db import Record, every_record, fresh_graph, state_of

__all__ = ["fresh_graph"]

GATES = [fo.Optimizer.GATE_NONE, fo.Optimizer.GATE_OP, fo.Optimizer.GATE_GRAPH]
every_gate = pytest.mark.parametrize("gate", GATES, ids=["none", "op", "graph"])


@pytest.fixture
def v() -> Any:
    return fo.Variable(np.array([1.0, 2.0]), name="v")


@every_gate
def test_minimize_is_compute_and_apply(v: Any, gate: int) -> None:
    w = fo.Variable(np.array([3.0, 4.0]), name="w")
    step = fo.Variable(np.int64(0), trainable=False)
    optimizer = fo.GradientDescentOptimizer(1.0)
    done = optimizer.minimize(
        lambda: v * w,
        step,
        [w],
        gate,
        fo.AggregationMethod.EXPERIMENTAL_TREE,
        True,
        "train",
        [1.0, -1.0],
    )
    assert w.numpy().tolist() == [2.0, 6.0] and v.numpy().tolist() == [1.0, 2.0]
    assert (done.name, done.step, step.numpy()) == ("train", 1, 1)
    assert len(done.variables) == 1 and done.variables[0] is w and done.dense_parameters == 2


@every_gate
def test_a_recorded_loss(v: Any, gate: int) -> None:
    optimizer = fo.GradientDescentOptimizer(0.25)
    optimizer.minimize(np.sum(v * v), gate_gradients=gate)
    assert v.numpy().tolist() == [0.5, 1.0]


@every_gate
def test_a_recorded_loss_in_eager_mode(v: Any, gate: int) -> None:
    loss = np.sum(v * v)
    with fo.eager_mode(), pytest.raises(RuntimeError, match="loss must be a function"):
        fo.GradientDescentOptimizer(0.25).minimize(loss, gate_gradients=gate)


@every_gate
def test_no_gradient_at_all_names_variables_loss_and_cause(v: Any, gate: int) -> None:
    def constant_loss() -> Any:
        return np.float32(5)

    optimizer = fo.AdamOptimizer()
    step = fo.Variable(np.int64(0), trainable=False)
    before = state_of(optimizer, v, step)
    with pytest.raises(
        ValueError, match=r"No gradients provided for any variable: \['v'\].*constant_loss.*copies"
    ):
        optimizer.minimize(constant_loss, step, var_list=[v], gate_gradients=gate)
    with pytest.raises(ValueError, match=r"No gradients provided for any variable: \[\].*copies"):
        optimizer.minimize(constant_loss, step, gate_gradients=gate)
    assert state_of(optimizer, v, step) == before


@every_gate
def test_integers_have_no_gradient_and_are_named(gate: int) -> None:
    n = fo.Variable(np.array([1, 2]), name="n")
    with pytest.raises(ValueError, match=r"No gradients .*Integers have no gradient: 'n'"):
        fo.GradientDescentOptimizer(1.0).minimize(
            lambda: np.sum(n * 2.0), var_list=[n], gate_gradients=gate
        )


@every_gate
def test_a_variable_that_the_loss_does_not_read_is_left_alone(v: Any, gate: int) -> None:
    w = fo.Variable(np.ones(2), name="w")
    optimizer = fo.MomentumOptimizer(0.25, 0.9)
    optimizer.minimize(lambda: np.sum(v * v), var_list=[w, v], gate_gradients=gate)
    assert w.numpy().tolist() == [1, 1] and v.numpy().tolist() == [0.5, 1.0]
    assert optimizer.get_slot(w, "momentum") is None


@every_gate
def test_a_variable_listed_twice_is_updated_twice_by_one_gradient(v: Any, gate: int) -> None:
    optimizer = fo.GradientDescentOptimizer(0.25)
    optimizer.minimize(lambda: np.sum(v * v), var_list=[v, v], gate_gradients=gate)
    assert v.numpy().tolist() == [0.0, 0.0]


@every_gate
def test_a_tensor_in_the_list_cannot_be_updated(v: Any, gate: int) -> None:
    x = fo.Tensor(2.0)
    with pytest.raises(NotImplementedError, match="cannot update Tensor"):
        fo.GradientDescentOptimizer(0.25).minimize(
            lambda: np.sum(v * x), var_list=[v, x], gate_gradients=gate
        )
    assert v.numpy().tolist() == [1.0, 2.0]


@every_gate
def test_a_constraint_and_a_look_up(gate: int) -> None:
    table = fo.Variable(np.ones((3, 1)), name="table", constraint=lambda x: x * 1.0)
    optimizer = fo.AdagradOptimizer(1.0)
    with pytest.raises(RuntimeError, match="'table' has a constraint"):
        optimizer.minimize(lambda: np.sum(fo.embedding_lookup(table, [1])), gate_gradients=gate)
    assert (table.numpy() == 1).all() and optimizer.get_slot_names() == []


@every_gate
@pytest.mark.parametrize("bad", ["step", np.array(0)])
def test_a_bad_step_counter_changes_nothing(v: Any, gate: int, bad: Any) -> None:
    optimizer = fo.AdamOptimizer()
    before = state_of(optimizer, v)
    with pytest.raises(AttributeError, match="global_step"):
        optimizer.minimize(lambda: np.sum(v * v), bad, gate_gradients=gate)
    assert state_of(optimizer, v) == before


@every_gate
def test_a_bad_rate_changes_nothing(v: Any, gate: int) -> None:
    optimizer = fo.AdamOptimizer(learning_rate=lambda: float("nan"))
    before = state_of(optimizer, v)
    with pytest.raises(ValueError, match="learning_rate"):
        optimizer.minimize(lambda: np.sum(v * v), gate_gradients=gate)
    assert state_of(optimizer, v) == before


# ------------------------------------------------------------------ values do not depend on gates


def network() -> tuple[list[Any], Any]:
    rng = np.random.default_rng(1)
    table = fo.Variable(rng.normal(size=(20, 4)), name="table")
    dense = fo.Variable(rng.normal(size=(4, 3)), name="dense")
    tied = fo.Variable(rng.normal(size=(3, 3)), name="tied")
    bias = fo.Variable(rng.normal(size=3), name="bias")
    ids = rng.integers(0, 20, 16)

    def loss() -> Any:
        h = np.tanh(fo.embedding_lookup(table, ids) @ dense + bias)
        h = np.tanh(h @ tied) @ tied  # used twice, and read again by the pass that undoes the first
        return np.mean(h * h) + 0.01 * np.sum(bias * bias)

    return [table, dense, tied, bias], loss


@every_record()
@pytest.mark.parametrize("use_locking", [False, True])
def test_gates_change_no_bit(record: Record, use_locking: bool) -> None:
    results = []
    for gate in GATES:
        with fo.Graph().as_default():
            variables, loss = network()
            step = fo.Variable(np.int64(0), trainable=False, name="step")
            optimizer = record.make(use_locking=use_locking)
            for _ in range(4):
                done = optimizer.minimize(loss, step, gate_gradients=gate)
            assert done.step == 4 and len(done.variables) == 4
            # A rule that sums over a variable makes a sparse gradient dense.
            makes_dense = RULES[optimizer._rule_name].reduction == "variable"
            n_dense = sum(var.size for var in variables) if makes_dense else 12 + 9 + 3
            assert done.dense_parameters == n_dense
            results.append(state_of(optimizer, *variables, step))
    assert results[0] == results[1] == results[2]


def test_a_gate_of_none_updates_in_the_order_of_the_pass_and_prepares_once() -> None:
    class Recorder(fo.GradientDescentOptimizer):
        def _create_slots(self, var_list: Any) -> None:
            events.append(("create", [var.name for var in var_list]))

        def _prepare(self) -> None:
            events.append(("prepare",))
            super()._prepare()

        def _apply_dense(self, grad: Any, var: Any) -> Any:
            events.append(("apply", var.name))
            super()._apply_dense(grad, var)
            return var.name

        def _finish(self, update_ops: Any, name: str) -> None:
            events.append(("finish", list(update_ops), name))

    events: list[Any] = []
    first = fo.Variable(np.ones((2, 2)), name="first")
    last = fo.Variable(np.ones((2, 2)), name="last")
    step = fo.Variable(np.int64(0), trainable=False)
    x = np.ones((1, 2))
    Recorder(0.1).minimize(lambda: np.sum(np.tanh(x @ first) @ last), step, gate_gradients=0)
    assert events == [
        ("create", ["first", "last"]),
        ("prepare",),
        ("apply", "last"),
        ("apply", "first"),
        ("finish", ["last", "first"], "update"),
    ]
    assert step.numpy() == 1


def peak_of(gate: int) -> tuple[int, bytes]:
    """Return the peak of memory in a step of a deep network of equal layers, and its result."""
    n, depth = 256, 12
    rng = np.random.default_rng(2)
    with fo.Graph().as_default():
        layers = [
            fo.Variable(rng.normal(0, 1 / 16, (n, n)), name=f"layer_{k}") for k in range(depth)
        ]
        x = rng.normal(size=(4, n))

        def loss() -> Any:
            h = x
            for layer in layers:
                h = np.tanh(h @ layer)
            return np.sum(h * h)

        optimizer = fo.GradientDescentOptimizer(0.1)
        optimizer.minimize(loss, gate_gradients=gate)
        tracemalloc.start()
        try:
            optimizer.minimize(loss, gate_gradients=gate)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        return peak, b"".join(layer.numpy().tobytes() for layer in layers)


def test_a_gate_of_none_needs_memory_for_one_gradient_and_not_for_all() -> None:
    gradient = 256 * 256 * 8
    (overlapped, a), (together, b) = peak_of(fo.Optimizer.GATE_NONE), peak_of(fo.Optimizer.GATE_OP)
    assert a == b
    assert together > 12 * gradient
    assert overlapped < 3 * gradient  # one, and the activations


def test_a_gate_of_none_keeps_what_was_done_when_a_later_gradient_fails() -> None:
    table = fo.Variable(np.ones((3, 2)), name="table", constraint=lambda x: x * 1.0)
    late = fo.Variable(np.ones(2), name="late")
    step = fo.Variable(np.int64(0), trainable=False)

    def loss() -> Any:
        return np.sum(fo.embedding_lookup(table, [0])) + np.sum(late)

    for gate, expected in ((fo.Optimizer.GATE_OP, 1.0), (fo.Optimizer.GATE_NONE, 0.0)):
        optimizer = fo.MomentumOptimizer(1.0, 0.9)
        with pytest.raises(RuntimeError, match="constraint"):
            optimizer.minimize(loss, step, [table, late], gate)
        assert late.numpy()[0] == expected and (table.numpy() == 1).all()
        assert step.numpy() == 0


def test_a_pass_that_fails_before_the_first_update_leaves_nothing(v: Any) -> None:
    @fo.custom_gradient
    def broken(x: Any) -> Any:
        def grad(g: Any) -> Any:
            raise ZeroDivisionError("mine")

        return x, grad

    optimizer = fo.AdamOptimizer()
    before = state_of(optimizer, v)
    with pytest.raises(ZeroDivisionError):
        optimizer.minimize(lambda: np.sum(broken(v * 2.0)), gate_gradients=0)
    assert state_of(optimizer, v) == before


def test_a_class_that_overrides_a_half_gets_it_called_with_every_gate(v: Any) -> None:
    class Halved(fo.GradientDescentOptimizer):
        def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
            return [(g * 0.5, x) for g, x in super().compute_gradients(*args, **kwargs)]

    for gate in GATES:
        v.assign([1.0, 2.0])
        Halved(0.5).minimize(lambda: np.sum(v * v), gate_gradients=gate)
        assert v.numpy().tolist() == [0.5, 1.0]


def without_gradient() -> Any:
    @fo.custom_gradient
    def blocked(x: Any) -> Any:
        return x * 1.0, lambda g: None

    return blocked


@every_gate
def test_a_path_that_yields_no_gradient(v: Any, gate: int) -> None:
    blocked = without_gradient()
    w = fo.Variable(np.ones(2), name="w")
    optimizer = fo.MomentumOptimizer(0.25, 0.9)
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        optimizer.minimize(lambda: np.sum(blocked(v)), gate_gradients=gate)
    assert optimizer.get_slot_names() == []
    optimizer.minimize(lambda: np.sum(blocked(v)) + np.sum(w * w), gate_gradients=gate)
    assert v.numpy().tolist() == [1.0, 2.0] and w.numpy().tolist() == [0.5, 0.5]


@every_gate
def test_a_loss_that_leads_to_nothing_listed(v: Any, gate: int) -> None:
    w = fo.Variable(np.ones(2), name="w")
    with pytest.raises(ValueError, match=r"No gradients provided for any variable: \['w'\]"):
        fo.AdamOptimizer().minimize(lambda: np.sum(v), var_list=[w], gate_gradients=gate)
