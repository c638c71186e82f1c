"""Optimizers in replicas: whose gradients are applied to what, and when not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt import distribute as fd
from fastopt.distribute import LocalReplicas, PerReplica, ReplicaError
from fastopt.loss_scale import DynamicLossScale
from fastopt.wrapper import OptimizerWrapper

TWO = LocalReplicas(2)


def me() -> int:
    context = fd.get_replica_context()
    assert context is not None
    return context.replica_id_in_sync_group


def sgd() -> Any:
    return fo.GradientDescentOptimizer(1.0)


def zeros(*shape: int, name: str = "v") -> fo.Variable:
    return fo.Variable(np.zeros(shape), name=name)


# ---------------------------------------------------------------------- sums


def test_gradients_are_summed_and_the_step_counts_once() -> None:
    """As TensorFlow with two replicas: gradients k and 10 k; slices of rows 0, 2 and 1, 2."""
    v, w, table = zeros(1, name="v"), zeros(1, name="w"), zeros(3, 1, name="table")
    step = fo.create_global_step()
    opt = sgd()

    def work() -> Any:
        k = me() + 1.0
        slices = fo.IndexedSlices(np.full((2, 1), k), [me(), 2])
        pairs = [(np.array([k]), v), ([10 * k], w), (slices, table)]
        return opt.apply_gradients(pairs, global_step=step)

    done, same = TWO.run(work)
    assert (v.item(), w.item()) == (-3.0, -30.0)
    assert table.numpy().ravel().tolist() == [-1.0, -2.0, -3.0]
    assert step.item() == 1
    assert done is same and done.step == 1 and done.sparse_rows == 3
    assert fo.get_collection(fo.GraphKeys.TRAIN_OP) == [done]


def test_what_one_replica_has_no_gradient_for_is_moved_by_the_others() -> None:
    """A replica without one adds nothing: in the n-fold batch it wouldn't either."""
    a, b, c = zeros(1, name="a"), zeros(1, name="b"), zeros(1, name="c")
    opt = fo.MomentumOptimizer(1.0, 0.9)

    def work() -> None:
        one = np.ones(1)
        opt.apply_gradients([(one, a), (None, c), (None if me() else one, b)])

    TWO.run(work)
    assert (a.item(), b.item(), c.item()) == (-2.0, -1.0, 0.0)
    assert opt.get_slot(c, "momentum") is None


def test_variables_without_a_gradient_may_be_missing_in_a_list() -> None:
    a, b = zeros(1, name="a"), zeros(1, name="b")

    def work() -> None:
        pairs = [(None, b), (np.ones(1), a)] if me() else [(np.ones(1), a)]
        opt.apply_gradients(pairs)

    opt = sgd()
    TWO.run(work)
    assert (a.item(), b.item()) == (-2.0, 0.0)


def test_a_variable_listed_twice_is_updated_twice() -> None:
    """As with one replica: the momentum of the second update has the first in it."""
    v = zeros(1)
    opt = fo.MomentumOptimizer(0.1, 0.9)
    TWO.run(lambda: opt.apply_gradients([(np.full(1, 0.5), v), (np.ones(1), v)]))
    slot = opt.get_slot(v, "momentum")
    assert slot is not None
    np.testing.assert_allclose(slot.numpy(), [2.9], rtol=1e-15)


def test_dense_on_one_replica_and_sparse_on_another_is_dense() -> None:
    table = zeros(3, 1)
    opt = sgd()

    def work() -> Any:
        slices = fo.IndexedSlices([[1.0], [1.0]], [2, 2])
        return opt.apply_gradients([(slices if me() else np.ones((3, 1)), table)])

    done, _ = TWO.run(work)
    assert table.numpy().ravel().tolist() == [-1.0, -1.0, -3.0]
    assert (done.dense_parameters, done.sparse_rows) == (3, 0)


def test_gradients_of_other_kinds_are_converted() -> None:
    v = fo.Variable(np.zeros(2, np.float32), name="v")
    opt = sgd()
    TWO.run(lambda: opt.apply_gradients([([1, 2] if me() else np.array([3.0, 4.0]), v)]))
    assert v.numpy().tolist() == [-4.0, -6.0] and v.dtype == np.float32


def test_the_callers_gradients_stay_as_they_are() -> None:
    v = zeros(2)
    gradients = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    opt = fo.AdamOptimizer()
    TWO.run(lambda: opt.apply_gradients([(gradients[me()], v)]))
    assert [g.tolist() for g in gradients] == [[1, 2], [3, 4]]


def test_the_gradient_may_be_the_variables_own_memory() -> None:
    """pytorch/pytorch PR#34904: a step read what it had just written."""
    v = fo.Variable(np.array([2.0, 4.0]), name="v")
    opt = fo.GradientDescentOptimizer(0.25)
    TWO.run(lambda: opt.apply_gradients([(v.value if me() else None, v)]))
    assert v.numpy().tolist() == [1.5, 3.0]


# ---------------------------------------------------------------------- the loss


@pytest.mark.parametrize(("reduction", "expected"), [("mean", 1.5), ("sum", 3.0)])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_the_loss_is_divided_under_mean(reduction: str, expected: float, as_tensor: bool) -> None:
    v = zeros()
    opt = sgd()

    def work() -> Any:
        loss = v * 3.0 if as_tensor else lambda: v * 3.0
        ((gradient, _),) = opt.compute_gradients(loss, [v])
        return float(gradient)

    assert LocalReplicas(2, loss_reduction=reduction).run(work).values == (expected,) * 2


def test_a_callable_may_say_how_its_loss_is_reduced() -> None:
    """The division is decided after the call."""
    v = zeros()

    def loss() -> Any:
        fd.set_loss_reduction("sum")
        return v * 3.0

    ((first, _), _) = TWO.run(lambda: sgd().compute_gradients(loss)[0])
    assert first == 3.0


def test_one_replica_and_no_strategy_divide_nothing() -> None:
    v = zeros()
    assert sgd().compute_gradients(lambda: v * 3.0)[0][0] == 3.0
    assert LocalReplicas(1).run(lambda: sgd().compute_gradients(lambda: v * 3.0)[0][0])[0] == 3.0


def test_grad_loss_multiplies_the_share() -> None:
    v = zeros()
    work = lambda: sgd().compute_gradients(lambda: v * 3.0, grad_loss=10.0)[0][0]  # noqa: E731
    assert TWO.run(work).values == (15.0, 15.0)


@pytest.mark.parametrize("gate", [0, 1, 2])
def test_minimize_with_every_gate(gate: int) -> None:
    a, b = fo.Variable(np.float64(2.0), name="a"), fo.Variable(np.float64(3.0), name="b")
    opt = sgd()
    TWO.run(lambda: opt.minimize(lambda: a * b * (me() + 1.0), gate_gradients=gate))
    assert (a.item(), b.item()) == (2.0 - 4.5, 3.0 - 3.0)


def test_minimize_where_one_replica_has_no_gradient() -> None:
    a, b = fo.Variable(np.float64(1.0), name="a"), fo.Variable(np.float64(1.0), name="b")
    opt = sgd()
    TWO.run(lambda: opt.minimize(lambda: a * 2.0 if me() else np.float64(1.0), var_list=[a, b]))
    assert (a.item(), b.item()) == (0.0, 1.0)


# ---------------------------------------------------------------------- errors change nothing


def state(opt: Any, *variables: fo.Variable) -> list[Any]:
    return [var.numpy().tolist() for var in (*variables, *opt.variables())]


def refused(work: Any, error: type[Exception], match: str, *variables: fo.Variable) -> None:
    """Check that a call fails and that neither variables nor slots have come or changed."""
    opt = fo.AdamOptimizer()
    before = state(opt, *variables)
    with pytest.raises(error, match=match):
        TWO.run(work, (opt,))
    assert state(opt, *variables) == before and opt.get_slot_names() == []


def test_no_gradient_on_any_replica() -> None:
    v = zeros(1)
    refused(lambda opt: opt.apply_gradients([(None, v)]), ValueError, "No gradients.*'v'", v)
    refused(lambda opt: opt.minimize(lambda: 3.0, var_list=[v]), ValueError, "No gradients", v)


def test_different_variables() -> None:
    a, b = zeros(1, name="a"), zeros(1, name="b")
    one = np.ones(1)

    def order(opt: Any) -> None:
        opt.apply_gradients([(one, b), (one, a)] if me() else [(one, a), (one, b)])

    def number(opt: Any) -> None:
        opt.apply_gradients([(one, a), (one, b)] if me() else [(one, a)])

    refused(order, ValueError, r"same order: replica 0 to \['a', 'b'\], replica 1 to \['b', 'a'\]")
    refused(number, ValueError, r"replica 0 to \['a'\], replica 1 to \['a', 'b'\]", a, b)


def test_different_step_counters_names_or_optimizers() -> None:
    v = zeros(1)
    steps = [fo.Variable(np.int64(0), trainable=False, name=f"step_{k}") for k in range(2)]
    pairs = [(np.ones(1), v)]
    refused(
        lambda opt: opt.apply_gradients(pairs, global_step=steps[me()]), ValueError, "global_step"
    )
    refused(
        lambda opt: opt.apply_gradients(pairs, global_step=steps[0] if me() else None),
        ValueError,
        "global_step",
    )
    refused(lambda opt: opt.apply_gradients(pairs, name=f"name {me()}"), ValueError, "name must be")
    refused(
        lambda opt: (sgd() if me() else opt).apply_gradients(pairs),
        ReplicaError,
        "replica 0 calls apply_gradients of .*'Adam'.*, replica 1 calls .*'GradientDescent'",
        v,
    )
    opt = sgd()
    TWO.run(lambda: opt.apply_gradients(pairs, name="x" + str(len(pairs))))  # equal, not the same
    assert v.item() == -2.0


def test_a_gradient_that_cannot_be_one_names_replica_and_variable() -> None:
    v, table = zeros(2), zeros(3, 1, name="table")

    def shape(opt: Any) -> None:
        opt.apply_gradients([(np.ones(2 + me()), v)])

    def row(opt: Any) -> None:
        opt.apply_gradients([(fo.IndexedSlices([[1.0]], [me() * 5]), table)])

    def kind(opt: Any) -> None:
        opt.apply_gradients([("one" if me() else np.ones(2), v)])

    refused(shape, ReplicaError, r"replica 1 of 2 raised ValueError: .*'v' has shape \(3,\)", v)
    refused(row, ReplicaError, "replica 1 of 2 raised IndexError: .*'table': index 5", table)
    refused(kind, ReplicaError, "replica 1 of 2 raised TypeError: .*'v'", v)
    refused(lambda opt: opt.apply_gradients([]), ReplicaError, "No variables provided")
    refused(
        lambda opt: opt.apply_gradients([(np.ones(2), v)], global_step=3),
        ReplicaError,
        "TypeError: global_step",
    )


def test_a_loss_that_raises_on_one_replica() -> None:
    v = zeros(1)

    def work(opt: Any) -> None:
        opt.minimize(lambda: np.sum(v) * (1.0 / (1 - me())))

    refused(work, ReplicaError, "replica 1 of 2 raised ZeroDivisionError", v)


def test_one_that_does_not_apply() -> None:
    v = zeros(1)

    def work(opt: Any) -> None:
        if me() == 0:
            opt.apply_gradients([(np.ones(1), v)])

    refused(work, ReplicaError, "replica 1 of 2 returned without .*apply_gradients of .*'Adam'", v)


def test_a_hyperparameter_out_of_its_bounds() -> None:
    v = zeros(1)
    opt = fo.AdamOptimizer(beta1=lambda: 2.0)
    with pytest.raises(ValueError, match="beta1"):
        TWO.run(lambda: opt.apply_gradients([(np.ones(1), v)]))
    assert v.item() == 0.0 and opt.variables() == []


def test_a_constraint_holds() -> None:
    v = fo.Variable(np.array([1.0, 1.0]), name="v", constraint=lambda v: np.maximum(v, 0.0))
    opt = sgd()
    TWO.run(lambda: opt.apply_gradients([(np.array([0.25, 3.0]), v)]))
    assert v.numpy().tolist() == [0.5, 0.0]


# ---------------------------------------------------------------------- cross-replica context


def test_apply_gradients_in_a_cross_replica_context() -> None:
    v = zeros(1)
    with TWO.scope():
        with pytest.raises(RuntimeError, match="cross-replica context.*_distributed_apply"):
            sgd().apply_gradients([(np.ones(1), v)])
        with pytest.raises(RuntimeError, match="cross-replica context.*_distributed_apply"):
            sgd().minimize(lambda: np.sum(v))
        wrapper = fo.MixedPrecisionLossScaleOptimizer(sgd(), 2)
        with pytest.raises(ValueError, match="replica context"):
            wrapper.apply_gradients([(np.ones(1), v)])
    assert v.item() == 0.0


def test_distributed_apply() -> None:
    v, w = zeros(1), zeros(1, name="w")
    opt, step = sgd(), fo.create_global_step()
    with TWO.scope():
        pairs = [(PerReplica([np.ones(1), np.full(1, 2.0)]), v), (None, w)]
        done = opt._distributed_apply(TWO, pairs, step, "both")
        with pytest.raises(ValueError, match="'v' must be PerReplica.*got ndarray"):
            opt._distributed_apply(TWO, [(np.ones(1), v)])
        with pytest.raises(ValueError, match="No gradients"):
            opt._distributed_apply(TWO, [(PerReplica([None, None]), v)])
        with pytest.raises(ValueError, match="has 2 replicas"):
            opt._distributed_apply(TWO, [(PerReplica([1.0]), v)])
        with pytest.raises(ValueError, match="No variables"):
            opt._distributed_apply(TWO, [])
    assert (v.item(), w.item(), step.item(), done.name) == (-3.0, 0.0, 1, "both")


def test_a_subclass_may_take_the_gradients_of_all_replicas_in_its_own_hands() -> None:
    class Largest(fo.GradientDescentOptimizer):
        """Applies the largest gradient instead of the sum."""

        def _distributed_apply(
            self, strategy: Any, grads_and_vars: Any, global_step: Any = None, name: Any = None
        ) -> Any:
            largest = [(PerReplica([max(g), None]), v) for g, v in grads_and_vars]
            return super()._distributed_apply(strategy, largest, global_step, name)

    v = zeros()
    opt = Largest(1.0)
    TWO.run(lambda: opt.apply_gradients([(np.float64(me() + 1.0), v)]))
    assert v.item() == -2.0


# ---------------------------------------------------------------------- loss scales and wrappers


def scaled(kind: str, scale: DynamicLossScale) -> Any:
    if kind == "option":
        return fo.GradientDescentOptimizer(1.0, loss_scale=scale)
    return fo.MixedPrecisionLossScaleOptimizer(sgd(), scale)


@pytest.mark.parametrize("kind", ["option", "wrapper"])
@pytest.mark.parametrize("bad", [0, 1])
def test_a_step_is_finite_if_it_is_on_all_replicas(kind: str, bad: int) -> None:
    v, w, step = zeros(1), zeros(1, name="w"), fo.create_global_step()
    scale = DynamicLossScale(16.0, increment_period=2)
    opt = scaled(kind, scale)

    def work(poison: float) -> Any:
        gradient = np.array([poison if me() == bad else 1.0])
        return opt.apply_gradients([(np.ones(1), v), (gradient, w)], global_step=step)

    done, _ = TWO.run(work, (np.inf,))
    assert (v.item(), w.item(), step.item(), done.variables) == (0.0, 0.0, 0, ())
    assert (float(scale()), scale.skipped_steps) == (8.0, 1)
    TWO.run(work, (1.0,))
    assert (v.item(), w.item(), step.item(), float(scale())) == (-2.0, -2.0, 1, 8.0)
    TWO.run(work, (1.0,))
    assert float(scale()) == 16.0  # after two good steps: each was counted once


def test_a_sum_that_is_not_finite_is_skipped_too() -> None:
    v = fo.Variable(np.zeros(1, np.float32), name="v")
    opt = fo.GradientDescentOptimizer(1.0, loss_scale="dynamic")
    with np.errstate(over="ignore"):
        TWO.run(lambda: opt.apply_gradients([(np.full(1, 3e38, np.float32), v)]))
    assert v.item() == 0.0


def test_a_wrapper_that_adds_nothing_passes_on() -> None:
    v = zeros(1)
    opt = OptimizerWrapper(sgd())
    opt.apply_gradients([(np.ones(1), v)])
    TWO.run(lambda: opt.apply_gradients([(np.ones(1), v)]))
    assert v.item() == -3.0
    assert scaled("wrapper", DynamicLossScale()).doing_loss_scaling()


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_of_float16_variables_are_added_in_float32(sparse: bool) -> None:
    """Each is finite in float16, and so is the weight; the sum of the gradients is not."""
    v = fo.Variable(np.zeros((1, 1), np.float16), name="v")
    opt = fo.GradientDescentOptimizer(2.0**-10, loss_scale="dynamic")
    gradient = np.full((1, 1), 60000, np.float16)
    pair = (fo.IndexedSlices(gradient, [0]) if sparse else gradient, v)
    TWO.run(lambda: opt.apply_gradients([pair]))
    assert v.item() == -117.1875


@pytest.mark.parametrize("kind", ["option", "wrapper"])
def test_minimize_with_a_loss_scale(kind: str) -> None:
    v = fo.Variable(np.float64(0.0), name="v")
    opt = scaled(kind, DynamicLossScale())
    TWO.run(lambda: opt.minimize(lambda: v * (me() + 1.0)))
    assert v.item() == -1.5


def test_accumulation_over_micro_batches_and_replicas() -> None:
    v, step = zeros(1), fo.create_global_step()
    opt = fo.GradientAccumulation(sgd(), 2)

    def work(gradient: float) -> None:
        opt.apply_gradients([(np.array([gradient + me()]), v)], global_step=step)

    TWO.run(work, (1.0,))
    assert (opt.num_accumulated, v.item(), step.item()) == (1, 0.0, 0)
    TWO.run(work, (3.0,))
    assert (opt.num_accumulated, v.item(), step.item()) == (0, -(3.0 + 7.0) / 2, 1)
    TWO.run(work, (1.0,))
    TWO.run(lambda: opt.flush(global_step=step))
    assert (opt.num_accumulated, v.item(), step.item()) == (0, -8.0, 2)


def test_a_subclass_that_clips_before_applying_clips_on_each_replica() -> None:
    class Clipping(fo.GradientDescentOptimizer):
        def apply_gradients(
            self, grads_and_vars: Any, global_step: Any = None, name: Any = None
        ) -> Any:
            clipped = [(np.clip(g, -1.0, 1.0), v) for g, v in grads_and_vars]
            return super().apply_gradients(clipped, global_step, name)

    v = zeros(1)
    opt = Clipping(1.0)
    TWO.run(lambda: opt.apply_gradients([(np.array([0.5 + me()]), v)]))
    assert v.item() == -1.5  # 0.5 and 1.5 clipped to 1; the sum is not clipped again


# ---------------------------------------------------------------------- a whole training


def test_a_run_may_be_a_whole_training() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 3))
    y = x @ np.array([1.0, -2.0, 0.5])
    w, step = zeros(3), fo.create_global_step()
    opt = fo.AdamOptimizer(0.1)

    def train(x: Any, y: Any) -> float:
        for _ in range(150):
            opt.minimize(lambda: np.mean((x @ w - y) ** 2), global_step=step)
        return float(np.mean((x @ w.numpy() - y) ** 2))

    losses = TWO.run(train, (TWO.split(x), TWO.split(y)))
    assert step.item() == 150 and max(losses) < 1e-4
