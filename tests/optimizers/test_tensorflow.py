"""The cases of TensorFlow's own tests, with the numbers that those assert.

Set-up P: ``var0 = [1, 2]``, ``var1 = [3, 4]``, gradients ``[.1, .1]`` and ``[.01, .01]``. Set-up Q:
``var0 = [1, 2]``, ``var1 = [4, 3]``, gradients ``[.1, .2]`` and ``[.01, .02]``; Q0: from zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastopt as fo

# The numbers come from float32 runs, printed with about as many digits as float32 has.
RTOL = 2e-6
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def close(var: Any, expected: Any, atol: float = 1e-7) -> None:
    np.testing.assert_allclose(var.numpy(), expected, rtol=RTOL, atol=atol)


def setup_p(dtype: Any) -> tuple[Any, Any, Any, Any]:
    return (
        fo.Variable(np.array([1, 2], dtype), name="var0"),
        fo.Variable(np.array([3, 4], dtype), name="var1"),
        np.array([0.1, 0.1], dtype),
        np.array([0.01, 0.01], dtype),
    )


def setup_q(dtype: Any, zeros: bool = False) -> tuple[Any, Any, Any, Any]:
    start = [[0, 0], [0, 0]] if zeros else [[1, 2], [4, 3]]
    return (
        fo.Variable(np.array(start[0], dtype), name="var0"),
        fo.Variable(np.array(start[1], dtype), name="var1"),
        np.array([0.1, 0.2], dtype),
        np.array([0.01, 0.02], dtype),
    )


def rows(values: list[float], indices: list[int], n: int, dtype: Any, index: Any = np.int32) -> Any:
    column = np.array(values, dtype).reshape(-1, 1)
    return fo.IndexedSlices(column, np.array(indices, index), (n, 1))


def column(values: list[float], dtype: Any) -> Any:
    return fo.Variable(np.array(values, dtype).reshape(-1, 1))


KINDS: dict[str, Callable[[float], Any]] = {
    "number": lambda x: x,
    "callable": lambda x: lambda: x,
    "tensor": lambda x: fo.Tensor(x),
    "variable": lambda x: fo.Variable(np.float64(x), trainable=False),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


# ------------------------------------------------------------------ the base class


def five_and_three() -> tuple[Any, Any, Callable[[], Any]]:
    var0 = fo.Variable(np.array([1.0, 2.0]), name="a")
    var1 = fo.Variable(np.array([3.0, 4.0]), name="b")
    return var0, var1, lambda: 5 * var0 + 3 * var1


@pytest.mark.parametrize("mode", ["callable", "eager", "tensor"])
@pytest.mark.parametrize(
    "method", [None, fo.AggregationMethod.EXPERIMENTAL_ACCUMULATE_N], ids=["default", "accumulate"]
)
def test_basic(mode: str, method: Any) -> None:
    var0, var1, loss = five_and_three()
    step = fo.Variable(np.int64(0), trainable=False)
    sgd = fo.GradientDescentOptimizer(3.0)
    with fo.eager_mode() if mode == "eager" else fo.graph_mode():
        target = loss() if mode == "tensor" else loss
        sgd.minimize(target, step, [var0, var1], aggregation_method=method)
    assert var0.numpy().tolist() == [-14, -13] and var1.numpy().tolist() == [-6, -5]
    assert step.numpy() == 1


def test_precomputed_gradient() -> None:
    var0, var1, loss = five_and_three()
    fo.GradientDescentOptimizer(3.0).minimize(loss(), grad_loss=[42.0, -42.0])
    assert var0.numpy().tolist() == [1 - 3 * 5 * 42, 2 + 3 * 5 * 42]
    assert var1.numpy().tolist() == [3 - 3 * 3 * 42, 4 + 3 * 3 * 42]


def test_no_variables() -> None:
    def loss() -> Any:
        var0 = fo.Variable([1.0, 2.0], trainable=False)
        var1 = fo.Variable([3.0, 4.0], trainable=False)
        return 5 * var0 + var1

    with pytest.raises(ValueError, match="No.*variables"):
        fo.GradientDescentOptimizer(3.0).minimize(loss)


def test_no_gradients() -> None:
    var0, var1, _ = five_and_three()
    with pytest.raises(ValueError, match="No gradients"):
        fo.GradientDescentOptimizer(3.0).minimize(lambda: 5 * var0, var_list=[var1])


def test_no_gradients_for_any_variable() -> None:
    var0, var1, _ = five_and_three()
    sgd = fo.GradientDescentOptimizer(3.0)
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        sgd.minimize(lambda: np.float64(5.0), var_list=[var0, var1])
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        sgd.apply_gradients([(None, var0), (None, var1)])


def test_gradients_as_variables() -> None:
    var0, var1, loss = five_and_three()
    sgd = fo.GradientDescentOptimizer(3.0)
    kept = [
        (fo.Variable(gradient, trainable=False), var)
        for gradient, var in sgd.compute_gradients(loss, [var0, var1])
    ]
    sgd.apply_gradients(kept)
    assert var0.numpy().tolist() == [-14, -13] and var1.numpy().tolist() == [-6, -5]


def test_tensors_as_variables() -> None:
    x = fo.Tensor(1.0)
    sgd = fo.GradientDescentOptimizer(3.0)
    pairs = sgd.compute_gradients(x * x, [x])
    assert len(pairs) == 1 and pairs[0][1] is x and float(pairs[0][0]) == 2.0
    with pytest.raises(NotImplementedError):
        sgd.apply_gradients(pairs)


def test_train_op(fresh_graph: Any) -> None:
    _, _, loss = five_and_three()
    done = fo.GradientDescentOptimizer(3.0).minimize(loss())
    assert done in fresh_graph.get_collection(fo.GraphKeys.TRAIN_OP)


def test_constraint() -> None:
    var0 = fo.Variable([1.0, 2.0], constraint=lambda x: np.clip(x, -0.1, 0.0))
    var1 = fo.Variable([3.0, 4.0], constraint=lambda x: np.clip(x, 0.0, 1.0))
    fo.GradientDescentOptimizer(3.0).minimize(lambda: 5 * var0 + 3 * var1)
    close(var0, [-0.1, -0.1])
    close(var1, [0.0, 0.0])


# ------------------------------------------------------------------ gradient descent


@every_dtype
@every_kind
def test_descent_p(dtype: Any, kind: Any) -> None:
    var0, var1, g0, g1 = setup_p(dtype)
    sgd = fo.GradientDescentOptimizer(kind(3.0))
    sgd.apply_gradients([(g0, var0), (g1, var1)])
    close(var0, [0.7, 1.7])
    close(var1, [2.97, 3.97])
    assert sgd.variables() == []


@every_dtype
@pytest.mark.parametrize("looked_up", [False, True])
def test_descent_of_a_square(dtype: Any, looked_up: bool) -> None:
    var0, var1 = fo.Variable(np.array([[1, 2]], dtype)), fo.Variable(np.array(3, dtype))
    x = np.array([[4], [5]], dtype)

    def loss() -> Any:
        row = fo.embedding_lookup(var0, [0]) if looked_up else var0
        return np.sum(np.square(row @ x + var1))

    fo.GradientDescentOptimizer(1.0).minimize(loss)  # predicts 17, so the gradient is 34
    close(var0, [[1 - 136, 2 - 170]])
    close(var1, 3 - 34)


def test_gradient_of_a_sum_is_ones() -> None:
    a, b = fo.Variable([1.0, 2.0]), fo.Variable([3.0, 4.0])
    pairs = fo.GradientDescentOptimizer(3.0).compute_gradients(a + b)
    assert [gradient.tolist() for gradient, _ in pairs] == [[1, 1], [1, 1]]


@every_dtype
def test_descent_sparse(dtype: Any) -> None:
    var0, var1 = column([1, 2], dtype), column([3, 4], dtype)
    step = fo.Variable(np.int64(0), trainable=False)
    pairs = [(rows([0.1], [0], 2, dtype), var0), (rows([0.01], [1], 2, dtype), var1)]
    fo.GradientDescentOptimizer(3.0).apply_gradients(pairs, global_step=step)
    close(var0, [[0.7], [2]])
    close(var1, [[3], [3.97]])
    assert step.numpy() == 1


# ------------------------------------------------------------------ momentum


@every_dtype
@every_kind
def test_momentum_p(dtype: Any, kind: Any) -> None:
    var0, var1, g0, g1 = setup_p(dtype)
    momentum = fo.MomentumOptimizer(kind(2.0), kind(0.9))
    momentum.apply_gradients([(g0, var0), (g1, var1)])
    assert momentum.get_slot_names() == ["momentum"]
    slot0, slot1 = (momentum.get_slot(var, "momentum") for var in (var0, var1))
    assert slot0.shape == var0.shape and not slot0.trainable and not slot1.trainable
    close(slot0, [0.1, 0.1])
    close(slot1, [0.01, 0.01])
    close(var0, [0.8, 1.8])
    close(var1, [2.98, 3.98])
    momentum.apply_gradients([(g0, var0), (g1, var1)])
    close(slot0, [0.19, 0.19])
    close(slot1, [0.019, 0.019])
    close(var0, [0.8 - 0.38, 1.8 - 0.38])
    close(var1, [2.98 - 0.038, 3.98 - 0.038])


@every_dtype
@pytest.mark.parametrize("sparse", [False, True])
def test_nesterov_is_the_look_ahead(dtype: Any, sparse: bool) -> None:
    """Undo the look-ahead, update the sum, step, look ahead again: the textbook's order."""
    var0, var1 = fo.Variable(np.array([[1], [2]], dtype)), fo.Variable(np.array([[3], [4]], dtype))
    lr, mu = 2.0, 0.9
    momentum = fo.MomentumOptimizer(lr, mu, use_nesterov=True)
    ahead = [var0.numpy().astype(float), var1.numpy().astype(float)]
    sums = [np.zeros((2, 1)), np.zeros((2, 1))]
    for _ in range(4):
        gradients = [10 * var0.numpy(), np.full((2, 1), 3, dtype)]
        expected = [10 * ahead[0], np.full((2, 1), 3.0)]
        for k in range(2):
            point = ahead[k] + sums[k] * lr * mu
            sums[k] = mu * sums[k] + expected[k]
            point = point - lr * sums[k]
            ahead[k] = point - sums[k] * lr * mu
        if sparse:
            gradients = [fo.IndexedSlices(g, [0, 1], (2, 1)) for g in gradients]
        momentum.apply_gradients(list(zip(gradients, (var0, var1), strict=True)))
        for var, w in zip((var0, var1), ahead, strict=True):
            # The cost grows by a factor of 20 a step, and with it the rounding of the first.
            tolerance = {np.float32: 2e-5, np.float64: 1e-12}[dtype]
            np.testing.assert_allclose(var.numpy(), w, rtol=tolerance)


@every_dtype
def test_momentum_by_look_ups(dtype: Any) -> None:
    var0 = fo.Variable(np.ones((2, 2), dtype))
    momentum = fo.MomentumOptimizer(1.0, 0.0)
    momentum.minimize(lambda: np.sum(fo.embedding_lookup(var0, [[1]])))
    close(var0, [[1, 1], [0, 0]])


@every_dtype
def test_momentum_sparse(dtype: Any) -> None:
    var0, var1 = fo.Variable(np.zeros((4, 2), dtype)), fo.Variable(np.ones((4, 2), dtype))
    g0 = fo.IndexedSlices(np.full((1, 2), 0.1, dtype), [1], (4, 2))
    g1 = fo.IndexedSlices(np.full((2, 2), 0.01, dtype), [2, 3], (4, 2))
    momentum = fo.MomentumOptimizer(2.0, 0.9)
    slots = []
    for slot0, slot1, w0, w1 in ((0.1, 0.01, -0.2, 0.98), (0.19, 0.019, -0.58, 0.942)):
        momentum.apply_gradients([(g0, var0), (g1, var1)])
        slots = [momentum.get_slot(var, "momentum") for var in (var0, var1)]
        close(slots[0], [[0, 0], [slot0] * 2, [0, 0], [0, 0]])
        close(slots[1], [[0, 0], [0, 0], [slot1] * 2, [slot1] * 2])
        close(var0, [[0, 0], [w0] * 2, [0, 0], [0, 0]])
        close(var1, [[1, 1], [1, 1], [w1] * 2, [w1] * 2])


def test_momentum_in_two_graphs() -> None:
    momentum = fo.MomentumOptimizer(2.0, 0.9)
    for names in (("a", "b"), ("c", "d")):
        with fo.Graph().as_default():
            pair = [fo.Variable([1.0, 2.0], name=name) for name in names]
            momentum.apply_gradients([(np.ones(2), var) for var in pair])
            slots = momentum.variables()
            assert [slot.name.partition("/")[0] for slot in slots] == list(names)


def test_ten_gradients_of_momentum() -> None:
    """As the recorded run, against the recurrence in float64."""
    rng = np.random.default_rng(2)
    gradients = rng.normal(0, 0.1, (10, 10)).astype(np.float32)
    var = fo.Variable(np.zeros(10, np.float32))
    momentum = fo.MomentumOptimizer(0.1, 0.1)
    w, a = np.zeros(10), np.zeros(10)
    for gradient in gradients:
        momentum.apply_gradients([(gradient, var)])
        a = 0.1 * a + gradient
        w = w - 0.1 * a
        close(var, w)


# ------------------------------------------------------------------ Adagrad


@every_dtype
@every_kind
@pytest.mark.parametrize("use_locking", [False, True])
def test_adagrad_p(dtype: Any, kind: Any, use_locking: bool) -> None:
    var0, var1, g0, g1 = setup_p(dtype)
    adagrad = fo.AdagradOptimizer(kind(3.0), initial_accumulator_value=0.1, use_locking=use_locking)
    for _ in range(3):
        adagrad.apply_gradients([(g0, var0), (g1, var1)])
    close(var0, [-1.6026099, -0.6026099])
    close(var1, [2.7156792, 3.7156792])


@every_dtype
def test_adagrad_sparse(dtype: Any) -> None:
    var0, var1 = column([1, 2], dtype), column([3, 4], dtype)
    adagrad = fo.AdagradOptimizer(3.0, initial_accumulator_value=0.1)
    pairs = [(rows([0.1], [0], 2, dtype), var0), (rows([0.01], [1], 2, dtype), var1)]
    for _ in range(3):
        adagrad.apply_gradients(pairs)
    close(var0, [[-1.6026099], [2]])
    close(var1, [[3], [3.7156792]])


@every_dtype
@pytest.mark.parametrize(
    "make",
    [lambda: fo.AdagradOptimizer(3.0, initial_accumulator_value=0.1), fo.AdamOptimizer],
    ids=["Adagrad", "Adam"],
)
def test_a_repeated_row_is_the_row_of_the_sum(dtype: Any, make: Any) -> None:
    repeated, summed = column([1, 2], dtype), column([1, 2], dtype)
    one, two = make(), make()
    for _ in range(3):
        one.apply_gradients([(rows([0.1, 0.1], [1, 1], 2, dtype), repeated)])
        two.apply_gradients([(rows([0.2], [1], 2, dtype), summed)])
        close(repeated, summed.numpy())


@every_dtype
def test_a_row_looked_up_twice(dtype: Any) -> None:
    a, b = column([1, 2], dtype), column([1, 2], dtype)
    ada_a, ada_b = fo.AdagradOptimizer(1.0), fo.AdagradOptimizer(1.0)
    for _ in range(3):
        ada_a.minimize(lambda: fo.embedding_lookup(a, [0]) + fo.embedding_lookup(a, [0]))
        ada_b.minimize(lambda: 2 * fo.embedding_lookup(b, [0]))
        close(a, b.numpy())


def test_stability_of_adagrad() -> None:
    start = np.array([[0.00872496, -0.106952, 0.110467, 0.226505, -0.0147257, -0.0105945]])
    gradient = np.array(
        [[-5.91278e-05, 5.31673e-05, -2.5779e-06, 4.29153e-05, -8.4877e-05, -9.48906e-05]]
    )
    for _ in range(100):
        var = fo.Variable(start.astype(np.float32))
        adagrad = fo.AdagradOptimizer(1.0, initial_accumulator_value=0.1)
        slices = fo.IndexedSlices(gradient.astype(np.float32), [0], (1, 6))
        adagrad.apply_gradients([(slices, var)])
        close(adagrad.get_slot(var, "accumulator"), np.full((1, 6), 0.1))
        close(var, start - gradient / np.sqrt(0.1))
        np.testing.assert_allclose(var.numpy()[0, 0], 0.00891194, rtol=RTOL)


# ------------------------------------------------------------------ Adam


def adam_formula(w: Any, g: Any, m: Any, v: Any, t: int) -> tuple[Any, Any, Any]:
    lr_t = 0.001 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w - lr_t * m / (np.sqrt(v) + 1e-8), m, v


@every_dtype
@every_kind
@pytest.mark.parametrize("sparse", [False, True])
def test_adam_p(dtype: Any, kind: Any, sparse: bool) -> None:
    var0, var1, g0, g1 = setup_p(dtype)
    adam = fo.AdamOptimizer(kind(0.001), kind(0.9), kind(0.999), kind(1e-8))
    expected = [(var0.numpy().astype(float), 0.0, 0.0), (var1.numpy().astype(float), 0.0, 0.0)]
    for t in range(1, 4):
        gradients = [fo.IndexedSlices(g, [0, 1], (2,)) if sparse else g for g in (g0, g1)]
        adam.apply_gradients(list(zip(gradients, (var0, var1), strict=True)))
        for k, (var, g) in enumerate(zip((var0, var1), (g0, g1), strict=True)):
            expected[k] = adam_formula(expected[k][0], g.astype(float), *expected[k][1:], t)
            close(var, expected[k][0])
        for k, beta in ((1, 0.9), (2, 0.999)):
            power = adam._get_non_slot_variable(f"beta{k}_power")
            assert power.numpy() == pytest.approx(beta ** (t + 1))
            assert any(power is x for x in adam.variables())
    assert adam.get_slot(var0, "m").name == "var0/Adam"
    with fo.Graph().as_default():
        assert adam.variables() == []


@every_dtype
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_adam_by_look_ups(dtype: Any, index: Any) -> None:
    var = fo.Variable(np.array([1, 2], dtype))
    ids = np.array([0, 1], index)
    adam = fo.AdamOptimizer(3.0)
    for _ in range(3):
        adam.minimize(lambda: np.sum(fo.embedding_lookup(var, ids)))
    assert (var.numpy() < -5).all()  # three steps of about the learning rate


@pytest.mark.parametrize(
    "make",
    [
        fo.AdamOptimizer,
        lambda: fo.AdagradOptimizer(3.0),
        lambda: fo.MomentumOptimizer(2.0, 0.9),
        lambda: fo.FtrlOptimizer(3.0),
    ],
    ids=["Adam", "Adagrad", "Momentum", "Ftrl"],
)
def test_state_is_shared_by_lists_of_variables_in_any_order(make: Any) -> None:
    """One optimizer called with two lists by turns is one optimizer."""
    a, b, g0, g1 = setup_p(np.float64)
    c, d, _, _ = setup_p(np.float64)
    turns, straight = make(), make()
    for k in range(4):
        pairs = [(g0, a), (g1, b)]
        turns.apply_gradients(pairs if k % 2 else pairs[::-1])
        straight.apply_gradients([(g0, c), (g1, d)])
    assert a.numpy().tobytes() == c.numpy().tobytes()
    assert b.numpy().tobytes() == d.numpy().tobytes()


# ------------------------------------------------------------------ FTRL


FTRL = {
    "plain": ({}, 3, [-2.55607247, -3.98729396], [-0.28232238, -0.56096673]),
    "l1": (
        {"l1_regularization_strength": 0.001},
        10,
        [-7.66718769, -10.91273689],
        [-0.93460727, -1.86147261],
    ),
    "l1 and l2": (
        {"l1_regularization_strength": 0.001, "l2_regularization_strength": 2.0},
        10,
        [-0.24059935, -0.46829352],
        [-0.02406147, -0.04830509],
    ),
    "shrinkage": (
        {
            "l1_regularization_strength": 0.001,
            "l2_regularization_strength": 2.0,
            "l2_shrinkage_regularization_strength": 0.1,
        },
        10,
        [-0.22578995, -0.44345796],
        [-0.14378493, -0.13229476],
    ),
    "beta": ({"beta": 0.1}, 10, [-6.096838, -9.162214], [-0.717741, -1.425132]),
    "beta and l2": (
        {"beta": 0.1, "l2_regularization_strength": 0.1},
        10,
        [-2.735487, -4.704625],
        [-0.294335, -0.586556],
    ),
}


@every_dtype
@pytest.mark.parametrize("case", FTRL)
def test_ftrl_q(dtype: Any, case: str) -> None:
    kwargs, steps, expected0, expected1 = FTRL[case]
    var0, var1, g0, g1 = setup_q(dtype)
    ftrl = fo.FtrlOptimizer(3.0, initial_accumulator_value=0.1, **kwargs)
    for _ in range(steps):
        ftrl.apply_gradients([(g0, var0), (g1, var1)])
    # Up to ten steps whose differences cancel; the numbers are printed with six or more digits.
    np.testing.assert_allclose(var0.numpy(), expected0, rtol=1e-5)
    np.testing.assert_allclose(var1.numpy(), expected1, rtol=1e-5)


@every_dtype
def test_ftrl_q0(dtype: Any) -> None:
    var0, var1, g0, g1 = setup_q(dtype, zeros=True)
    ftrl = fo.FtrlOptimizer(3.0, initial_accumulator_value=0.1)
    for _ in range(3):
        ftrl.apply_gradients([(g0, var0), (g1, var1)])
    close(var0, [-2.60260963, -4.29698515])
    close(var1, [-0.28432083, -0.56694895])


@every_dtype
def test_ftrl_shrinkage_sparse(dtype: Any) -> None:
    kwargs, steps, expected0, expected1 = FTRL["shrinkage"]
    var0, var1 = column([1, 2], dtype), column([4, 3], dtype)
    ftrl = fo.FtrlOptimizer(3.0, initial_accumulator_value=0.1, **kwargs)
    pairs = [(rows([0.1], [0], 2, dtype), var0), (rows([0.02], [1], 2, dtype), var1)]
    for _ in range(steps):
        ftrl.apply_gradients(pairs)
    np.testing.assert_allclose(var0.numpy(), [[expected0[0]], [2]], rtol=1e-5)
    np.testing.assert_allclose(var1.numpy(), [[4], [expected1[1]]], rtol=1e-5)


@every_dtype
def test_shrinkage_leaves_the_accumulator_alone(dtype: Any) -> None:
    var0, var1, g0, _ = setup_q(dtype)
    var1.assign(var0.value)
    with_, without = (
        fo.FtrlOptimizer(
            3.0,
            l1_regularization_strength=0.001,
            l2_regularization_strength=2.0,
            l2_shrinkage_regularization_strength=strength,
        )
        for strength in (0.1, 0.0)
    )
    for _ in range(10):
        with_.apply_gradients([(g0, var0)])
        without.apply_gradients([(g0, var1)])
    accumulators = with_.get_slot(var0, "accum"), without.get_slot(var1, "accum")
    assert accumulators[0].numpy().tobytes() == accumulators[1].numpy().tobytes()
    assert (np.square(var0.numpy()) < np.square(var1.numpy())).all()


@every_dtype
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("power", [-0.5, 0.0])
def test_ftrl_from_zeros_is_a_simpler_rule(dtype: Any, sparse: bool, power: float) -> None:
    start = np.zeros((2, 1), dtype)
    a, b = fo.Variable(start), fo.Variable(start)
    ftrl = fo.FtrlOptimizer(3.0, learning_rate_power=power, initial_accumulator_value=0.1)
    simpler: Any = fo.AdagradOptimizer(3.0, initial_accumulator_value=0.1)
    if power == 0.0:
        simpler = fo.GradientDescentOptimizer(3.0)
    for _ in range(5):
        gradient: Any = np.array([[0.1], [0.2]], dtype)
        if sparse:
            gradient = fo.IndexedSlices(gradient, [0, 1], (2, 1))
        ftrl.apply_gradients([(gradient, a)])
        simpler.apply_gradients([(gradient, b)])
    tolerance = {np.float32: 1e-5, np.float64: 1e-13}[dtype]  # other operations, five steps
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance)


@pytest.mark.parametrize("sparse", [False, True])
def test_ftrl_of_gradients_that_are_no_numbers(sparse: bool) -> None:
    """What TensorFlow's dense kernel gives. Its sparse one has NaN for each 0 here."""
    var = fo.Variable(np.array([[1], [-2], [3]], np.float32))
    ftrl = fo.FtrlOptimizer(0.5)
    for gradient, weights, linear in (
        ([np.nan, np.inf, 1.0], [0.0, np.nan, 1.6187345], [np.nan, np.inf, -3.3954859]),
        ([1.0, 1.0, 1.0], [0.0, 0.0, 1.2737017], [np.nan, np.nan, -3.6915383]),
    ):
        g: Any = np.array(gradient, np.float32).reshape(3, 1)
        ftrl.apply_gradients([(fo.IndexedSlices(g, [0, 1, 2], (3, 1)) if sparse else g, var)])
        close(var, np.reshape(weights, (3, 1)))
        close(ftrl.get_slot(var, "linear"), np.reshape(linear, (3, 1)))


# ------------------------------------------------------------------ minimize a look-up


@every_dtype
@pytest.mark.parametrize(
    ("make", "expected", "atol"),
    [
        (lambda: fo.GradientDescentOptimizer(1.0), [[-111, -138]], 1e-4),
        (lambda: fo.MomentumOptimizer(1.0, 0.0), [[-111, -138]], 1e-4),
        (lambda: fo.AdagradOptimizer(1.0), [[0, 1]], 0.01),
        (lambda: fo.FtrlOptimizer(1.0), [[0, 1]], 0.01),
    ],
    ids=["GradientDescent", "Momentum", "Adagrad", "Ftrl"],
)
def test_minimize_a_look_up(dtype: Any, make: Any, expected: Any, atol: float) -> None:
    var0 = fo.Variable(np.array([[1, 2]], dtype))
    x = np.array([[4], [5]], dtype)
    make().minimize(lambda: np.sum(np.square(fo.embedding_lookup(var0, [0]) @ x)))
    np.testing.assert_allclose(var0.numpy(), expected, atol=atol)


# ------------------------------------------------------------------ the bare rules


@every_dtype
def test_the_bare_rules(dtype: Any) -> None:
    x, g = np.arange(100, dtype=dtype), np.arange(100, dtype=dtype)
    lr, l1, l2 = 2.0, 3.0, 4.0
    var = fo.Variable(x)
    fo.GradientDescentOptimizer(lr).apply_gradients([(g, var)])
    close(var, x - lr * g)
    accumulator = np.arange(1, 101, dtype=dtype)
    var, adagrad = fo.Variable(x), fo.AdagradOptimizer(lr)
    adagrad._create_slots([var])
    adagrad.get_slot(var, "accumulator").assign(accumulator)
    adagrad.apply_gradients([(g, var)])
    total = accumulator.astype(float) + g.astype(float) ** 2
    close(var, x - lr * g / np.sqrt(total), atol=1e-5)
    linear = np.arange(102, 202, dtype=dtype)
    for sparse in (False, True):
        shape = (100, 1) if sparse else (100,)
        var = fo.Variable(x.reshape(shape))
        ftrl = fo.FtrlOptimizer(lr, l1_regularization_strength=l1, l2_regularization_strength=l2)
        ftrl._create_slots([var])
        ftrl.get_slot(var, "accum").assign(accumulator.reshape(shape))
        ftrl.get_slot(var, "linear").assign(linear.reshape(shape))
        gradient: Any = g.reshape(shape)
        if sparse:
            gradient = fo.IndexedSlices(gradient, np.arange(100), shape)
        ftrl.apply_gradients([(gradient, var)])
        z = linear + g - (np.sqrt(total) - np.sqrt(accumulator.astype(float))) / lr * x
        quotient = np.sqrt(total) / lr + 2 * l2
        expected = np.where(np.abs(z) > l1, (np.copysign(l1, z) - z) / quotient, 0)
        # linear loses about two digits to cancellation in float32
        tolerance = {np.float32: 2e-4, np.float64: 1e-12}[dtype]
        np.testing.assert_allclose(var.numpy().ravel(), expected, rtol=tolerance, atol=1e-5)


@every_dtype
def test_the_bare_adam(dtype: Any) -> None:
    x, g = np.arange(100, dtype=dtype), np.arange(100, dtype=dtype)
    m, v = np.arange(1, 101, dtype=dtype), np.arange(101, 201, dtype=dtype)
    var, adam = fo.Variable(x), fo.AdamOptimizer(0.001)
    adam._create_slots([var])
    adam.get_slot(var, "m").assign(m)
    adam.get_slot(var, "v").assign(v)
    adam.apply_gradients([(g, var)])
    expected = adam_formula(*(array.astype(float) for array in (x, g, m, v)), 1)
    close(var, expected[0])
    close(adam.get_slot(var, "m"), expected[1])
    close(adam.get_slot(var, "v"), expected[2])


@every_dtype
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("width", [10, 1])
@pytest.mark.parametrize(
    "make",
    [lambda: fo.AdagradOptimizer(2.0), lambda: fo.FtrlOptimizer(2.0)],
    ids=["Adagrad", "Ftrl"],
)
def test_the_bare_rules_on_rows(dtype: Any, index: Any, width: int, make: Any) -> None:
    x = np.arange(3 * width, dtype=dtype).reshape(3, width)
    gradient = np.array([1.5, 2.5], dtype).repeat(width).reshape(2, width)
    a, b = fo.Variable(x), fo.Variable(x[[0, 2]])
    sparse, dense = make(), make()
    sparse.apply_gradients([(fo.IndexedSlices(gradient, np.array([0, 2], index)), a)])
    dense.apply_gradients([(gradient, b)])
    assert a.numpy()[[0, 2]].tobytes() == b.numpy().tobytes()
    assert a.numpy()[1].tobytes() == x[1].tobytes()


# ------------------------------------------------------------------ scatter, as descent uses it


@every_dtype
@pytest.mark.parametrize("shape", [(2, 2), (14, 10), (43, 20, 10, 10)])
def test_distinct_rows_are_exactly_subtracted(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    var = fo.Variable(rng.normal(size=shape).astype(dtype))
    ids = rng.permutation(shape[0])[: shape[0] // 2 + 1]
    values = rng.normal(size=(len(ids), *shape[1:])).astype(dtype)
    expected = var.numpy()
    for row, value in zip(ids, values, strict=True):
        expected[row] -= value
    fo.GradientDescentOptimizer(1.0).apply_gradients([(fo.IndexedSlices(values, ids), var)])
    assert var.numpy().tobytes() == expected.tobytes()


@every_dtype
@pytest.mark.parametrize("ids", [[31] * 8, [2, 0, 4, 1, 3, 1, 4, 0, 4, 3]])
@pytest.mark.parametrize("row", [(), (3,), (2, 3, 4)])
def test_repeated_rows_are_exactly_subtracted_in_order(dtype: Any, ids: Any, row: Any) -> None:
    rng = np.random.default_rng(2)
    var = fo.Variable(rng.normal(size=(32, *row)).astype(dtype))
    values = rng.normal(size=(len(ids), *row)).astype(dtype)
    expected = var.numpy()
    for k, value in zip(ids, values, strict=True):
        expected[k] -= value
    fo.GradientDescentOptimizer(1.0).apply_gradients([(fo.IndexedSlices(values, ids), var)])
    assert var.numpy().tobytes() == expected.tobytes()
