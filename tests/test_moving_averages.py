"""Moving averages: TensorFlow's numbers, names, functions, and tables averaged row by row."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastopt import schedules
from fastopt.autodiff import Tensor
from fastopt.graph import Graph, GraphKeys
from fastopt.indexed_slices import IndexedSlices
from fastopt.moving_averages import ExponentialMovingAverage, assign_moving_average
from fastopt.threads import num_threads
from fastopt.variable import Variable

GOLDEN = np.load(Path(__file__).parent / "golden" / "ema.npz")
CASES: dict[str, dict[str, Any]] = json.loads(str(GOLDEN["meta"]))["cases"]
# Seven steps; TensorFlow rounds the decay to float32 also for float64, and computes in float16.
TOLERANCES = {
    "float16": {"rtol": 1e-2, "atol": 4e-3},
    "float32": {"rtol": 2e-5, "atol": 2e-6},
    "float64": {"rtol": 1e-6, "atol": 1e-7},
}


@pytest.fixture(autouse=True)
def graph() -> Any:
    with Graph().as_default() as g:
        yield g


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", ["decay09", "decay0", "num_updates"])
def test_golden(case: str, dtype: str) -> None:
    values = GOLDEN[f"{dtype}/{case}/values"]
    v = Variable(values[0], name="v")
    step = Variable(np.int64(0), trainable=False)
    num_updates = step if case == "num_updates" else None
    ema = ExponentialMovingAverage(CASES[case]["decay"], num_updates)
    for t, value in enumerate(values):
        v.assign(value)
        step.assign(t)
        ema.apply([v])
        shadow = ema.average(v)
        assert shadow is not None and not shadow.trainable
        assert shadow.dtype == ("float32" if dtype == "float16" else dtype)
        np.testing.assert_allclose(
            shadow, GOLDEN[f"{dtype}/{case}/average"][t], **TOLERANCES[dtype]
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_golden_zero_debias(dtype: str) -> None:
    values, averages = (GOLDEN[f"{dtype}/zero_debias/{what}"] for what in ("values", "average"))
    decay = CASES["zero_debias"]["decay"]
    mean = Variable(np.full(3, 7, dtype), trainable=False)
    source = iter(values)
    ema = ExponentialMovingAverage(decay, zero_debias=True)

    def tensor() -> np.ndarray:
        return next(source)

    for value, expected in zip(values, averages[1:], strict=True):
        assert assign_moving_average(mean, value, decay) is mean
        np.testing.assert_allclose(mean, expected, **TOLERANCES[dtype])
        ema.apply([tensor])
        np.testing.assert_allclose(ema.average(tensor), expected, **TOLERANCES[dtype])


def test_variables_and_a_function() -> None:
    """Shadows start at the variable's value, that of a function at 0."""
    v0, v1 = Variable([10.0, 10.0], name="v0"), Variable(30.0, name="v1")
    ema = ExponentialMovingAverage(0.25)

    def total() -> Any:
        return v0 + v1

    assert ema.average(v0) is None and ema.average(total) is None
    assert ema.average_name(v0) == "v0/ExponentialMovingAverage"
    assert ema.average_name(total) == "total/ExponentialMovingAverage"
    ema.apply([v0, v1, total])
    averages = [ema.average(x) for x in (v0, v1, total)]
    assert all(a is not None and not a.trainable for a in averages)
    assert [a.name for a in averages] == [ema.average_name(x) for x in (v0, v1, total)]  # type: ignore[union-attr]
    np.testing.assert_allclose(averages[0], [10.0, 10.0])
    np.testing.assert_allclose(averages[1], 30.0)
    np.testing.assert_allclose(averages[2], [30.0, 30.0])
    v0.assign([20.0, 20.0])
    ema.apply([v0, v1, total])
    np.testing.assert_allclose(averages[0], [17.5, 17.5])
    np.testing.assert_allclose(averages[2], [30 * 0.25 + 50 * 0.75] * 2)


def test_function_of_another_shape() -> None:
    v, source = Variable(1.0, name="v"), iter([np.zeros(2), np.zeros(3)])
    ema = ExponentialMovingAverage(0.5)

    def total() -> Any:
        return next(source)

    ema.apply([total])
    with pytest.raises(ValueError, match=r"total returned an array of shape \(3,\), before \(2,\)"):
        ema.apply([v, total])
    assert ema.average(v) is None  # nothing has changed


def test_zero_debias_of_a_varying_decay_is_the_mean_of_a_constant() -> None:
    step = Variable(np.int64(0), trainable=False)
    ema = ExponentialMovingAverage(0.999, num_updates=step, zero_debias=True)

    def three() -> float:
        return 3.0

    for t in range(20):
        step.assign(t)
        ema.apply([three])
        np.testing.assert_allclose(ema.average(three), 3.0, rtol=1e-14)


def test_num_updates() -> None:
    v = Variable(np.float64(0.0), name="v")
    ema = ExponentialMovingAverage(0.25, num_updates=lambda: 1)
    ema.apply([v])
    v.assign(1.0)
    ema.apply([v])
    np.testing.assert_allclose(ema.average(v), 1.0 - 2.0 / 11.0, rtol=1e-15)


def test_decay_from_a_schedule() -> None:
    step = Variable(np.int64(0), trainable=False)
    v = Variable(np.float64(0.0), name="v")
    ema = ExponentialMovingAverage(schedules.piecewise_constant(step, [0], [0.5, 0.75]))
    ema.apply([v])
    v.assign(1.0)
    for expected in (0.5, 0.625):
        ema.apply([v])
        np.testing.assert_allclose(ema.average(v), expected)
        step.assign(1)


def test_bare_function() -> None:
    v = Variable(np.array([10.0, 11.0]), name="v")
    assign_moving_average(v, [1.0, 2.0], 0.25, zero_debias=False)
    np.testing.assert_array_equal(v, [10 * 0.25 + 1 * 0.75, 11 * 0.25 + 2 * 0.75])
    debiased = Variable(np.zeros(2, np.float32), name="debiased")
    assign_moving_average(debiased, [1.0, 2.0], 0.9)
    np.testing.assert_allclose(debiased, [1.0, 2.0], rtol=1e-6)
    still = Variable(np.ones(2), name="still")
    assign_moving_average(still, [5.0, 5.0], 1.0)
    np.testing.assert_array_equal(still, [0.0, 0.0])  # no weight was given out yet
    for value, decay, error in (
        ([1.0, 2.0, 3.0], 0.5, ValueError),
        ([1.0, 2.0], 1.5, ValueError),
        (["a", "b"], 0.5, TypeError),
        (IndexedSlices(np.ones((1,)), [0]), 0.5, TypeError),
    ):
        with pytest.raises(error, match="assign_moving_average"):
            assign_moving_average(still, value, decay)
    with pytest.raises(TypeError, match="must be a floating Variable"):
        assign_moving_average(Variable(np.arange(2)), [1, 2], 0.5)
    with pytest.raises(TypeError, match="must be a floating Variable"):
        assign_moving_average(np.zeros(2), [1, 2], 0.5)  # type: ignore[arg-type]


def test_values_of_any_layout() -> None:
    value = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    mean = Variable(np.zeros((2, 3)), name="mean")
    for _ in range(2):
        assign_moving_average(mean, value, 0.5)
    np.testing.assert_allclose(mean, value, rtol=1e-15)
    assign_moving_average(mean, -value, 0.5, zero_debias=False)
    np.testing.assert_allclose(mean, np.zeros((2, 3)), atol=1e-15)
    ema = ExponentialMovingAverage(0.5)

    def function() -> np.ndarray:
        return value

    ema.apply([function])
    np.testing.assert_allclose(ema.average(function), value / 2)


def test_large_variables_are_averaged_in_parts() -> None:
    v = Variable(np.zeros(150_000, np.float32), name="v")
    ema = ExponentialMovingAverage(0.5)
    ema.apply([v])
    v.assign(np.arange(150_000, dtype=np.float32))
    ema.apply([v])
    np.testing.assert_array_equal(ema.average(v), v.numpy() / 2)


def test_float16_is_computed_wider() -> None:
    v = Variable(np.array([1.0], np.float16), name="v")
    ema = ExponentialMovingAverage(0.5)
    ema.apply([v])
    v.assign([-6e4])
    ema.average(v).assign([6e4])  # type: ignore[union-attr]
    ema.apply([v])  # whose difference is beyond float16
    np.testing.assert_array_equal(ema.average(v), [0.0])


def test_errors_change_nothing(graph: Graph) -> None:
    v = Variable([1.0], name="v")
    ema = ExponentialMovingAverage(0.5)
    for bad, message in (
        (Variable(np.arange(3), name="ids"), "variable 'ids' has dtype int64"),
        (Tensor(1.0), r"var_list\[1\] must be a Variable or a callable"),
        (np.ones(2), r"var_list\[1\] must be a Variable or a callable"),
        (lambda: "text", "the value of lambda"),
    ):
        with pytest.raises(TypeError, match=message):
            ema.apply([v, bad])
        assert ema.average(v) is None
        assert graph.get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES) == []
    for arguments, error, message in (
        ((1.5,), ValueError, "decay"),
        ((-0.1,), ValueError, "decay"),
        (("0.5",), TypeError, "decay"),
        ((0.5, -1), ValueError, "num_updates"),
        ((0.5, None, 1), TypeError, "zero_debias"),
        ((0.5, None, False, ""), ValueError, "name"),
    ):
        with pytest.raises(error, match=f"ExponentialMovingAverage: {message} must be"):
            ExponentialMovingAverage(*arguments)
    with pytest.raises(ValueError, match="decay"):
        ExponentialMovingAverage(lambda: 2.0).apply([v])


def test_names_and_what_to_restore(graph: Graph) -> None:
    v, w = Variable([1.0], name="v"), Variable([1.0], name="w")
    fixed = Variable([1.0], trainable=False, name="fixed")
    ema = ExponentialMovingAverage(0.5, name="mean")
    assert ema.name == "mean"
    assert ema.variables_to_restore() == {"v/mean": v, "w/mean": w, "fixed": fixed}
    ema.apply([fixed])
    assert graph.get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES)[0] is fixed
    restore = ema.variables_to_restore()
    assert set(restore) == {"v/mean", "w/mean", "fixed/mean"}
    assert restore["fixed/mean"] is fixed
    restore = ema.variables_to_restore([w])
    assert set(restore) == {"v", "w/mean", "fixed", "fixed/mean"}
    ema.apply()  # all trainable variables
    assert ema.average(v) is not None and ema.average(w) is not None
    second = ExponentialMovingAverage(0.5, name="mean")
    second.apply([v])
    assert second.average_name(v) == "v/mean_1"


def test_shadows_go_with_their_variables_and_copies_are_apart() -> None:
    v = Variable(np.array([1.0, 2.0]), name="v")
    ema = ExponentialMovingAverage(0.5)
    ema.apply([v])
    other_v, other = copy.deepcopy((v, ema))
    other_v.assign([3.0, 4.0])
    other.apply([other_v])
    np.testing.assert_array_equal(other.average(other_v), [2.0, 3.0])
    np.testing.assert_array_equal(ema.average(v), [1.0, 2.0])
    again_v, again = pickle.loads(pickle.dumps((v, ema)))
    np.testing.assert_array_equal(again.average(again_v), [1.0, 2.0])
    assert len(ema._shadows) == 1
    del v
    assert len(ema._shadows) == 0


# ---------------------------------------------------------------------- row by row


@settings(max_examples=60)
@given(data=st.data())
def test_row_by_row_equals_all_at_once(data: Any) -> None:
    """Read or not in between, with dense steps and assignments mixed in."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    width = data.draw(st.sampled_from([(), (3,), (2, 2)]))
    with Graph().as_default():
        table = Variable(rng.normal(size=(6, *width)).astype(dtype), name="table")
        decays = iter(rng.choice([0.0, 0.3, 0.9, 0.999, 1.0], size=60))
        now = [0.5]
        lazy = ExponentialMovingAverage(lambda: now[0])
        eager = ExponentialMovingAverage(lambda: now[0])
        for _ in range(data.draw(st.integers(1, 20))):
            now[0] = float(next(decays))
            kind = data.draw(st.sampled_from(["rows", "rows", "rows", "dense", "assign", "read"]))
            ids = rng.integers(0, 6, size=rng.integers(0, 5))
            if kind == "read" and lazy.average(table) is not None:
                np.testing.assert_allclose(
                    lazy.average(table), eager.average(table), rtol=1e-5, atol=1e-6
                )
            elif kind == "assign" and lazy.average(table) is not None:
                value = rng.normal(size=table.shape).astype(dtype)
                for ema in (lazy, eager):
                    ema.average(table).assign(value)  # type: ignore[union-attr]
            elif kind == "dense":
                table.assign(rng.normal(size=table.shape).astype(dtype))
                lazy.apply([table])
                eager.apply([table])
            else:
                value = table.numpy()
                value[ids] = rng.normal(size=(ids.size, *width))
                table.assign(value)
                lazy.apply([table], rows={table: ids})
                eager.apply([table])
        if eager.average(table) is not None:
            # float32: some 20 roundings of numbers of size 1
            tolerance = 1e-5 if dtype == np.float32 else 1e-12
            shadow = lazy.average(table)
            assert shadow is not None
            some = np.array([4, 1, 4])
            np.testing.assert_allclose(
                shadow._read_rows(some),
                eager.average(table)._read()[some],  # type: ignore[union-attr]
                rtol=tolerance,
                atol=tolerance,
            )
            np.testing.assert_allclose(shadow, eager.average(table), rtol=tolerance, atol=tolerance)


def test_rows_touch_nothing_else() -> None:
    table = Variable(np.zeros((1000, 4)), name="table")
    ema = ExponentialMovingAverage(0.5)
    gradient = IndexedSlices(np.ones((2, 4)), [7, 9], (1000, 4))
    ema.apply([table], rows={table: []})
    value = table.numpy()
    value[[7, 9]] = 1.0
    table.assign(value)
    ema.apply([table], rows={table: gradient})
    shadow = ema.average(table)
    assert shadow is not None
    assert np.flatnonzero(shadow._storage.any(axis=1)).tolist() == [7, 9]
    copied = copy.deepcopy(shadow)
    for _ in range(3):
        ema.apply([table], rows={table: []})
    np.testing.assert_array_equal(copied.numpy()[7], np.full(4, 0.5))
    np.testing.assert_array_equal(shadow._storage[7], np.full(4, 0.5))  # not brought up to date
    np.testing.assert_allclose(shadow.numpy()[[7, 9]], np.full((2, 4), 1 - 0.5**4), rtol=1e-15)
    np.testing.assert_array_equal(shadow.assign_add(np.ones((1000, 4))).numpy()[0], np.ones(4))


def test_rows_after_a_long_time() -> None:
    """Sums of very many logarithms must not lose what a few steps mean."""
    table = Variable(np.array([[1.0], [2.0]]), name="table")
    decay = [0.5]
    ema = ExponentialMovingAverage(lambda: decay[0])
    ema.apply([table], rows={table: []})
    for _ in range(4000):
        ema.apply([table], rows={table: [1]})
    decay[0] = 0.999
    table.assign([[1.0], [3.0]])
    ema.apply([table], rows={table: [1]})
    for _ in range(2):
        ema.apply([table], rows={table: [0]})
    np.testing.assert_allclose(ema.average(table), [[1.0], [3.0 - 0.999**3]], rtol=1e-13)


def test_rows_errors() -> None:
    table, other = (
        Variable(np.zeros((5, 2)), name="table"),
        Variable(np.zeros((5, 2)), name="other"),
    )
    scalar = Variable(0.0, name="scalar")
    ema = ExponentialMovingAverage(0.5)
    for var, ids, error, message in (
        (table, [0, 5], IndexError, "rows of variable 'table': index 5 is out of range for 5 rows"),
        (table, [-1, 2], IndexError, "index -1 is out of range"),
        (table, [0.5], TypeError, "must be integers"),
        (table, [[1]], ValueError, "one-dimensional"),
        (other, [0], ValueError, "'other', which is not in var_list"),
        (scalar, [0], TypeError, "rows must map variables with rows"),
    ):
        with pytest.raises(error, match=message):
            ema.apply([table, scalar], rows={var: ids})
        assert ema.average(table) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_all_at_once_is_one_by_one(threads: int) -> None:
    rng = np.random.default_rng(4)
    shapes = [(3,), (200, 70), (), (5, 0), (40_000,)]
    dtypes = [np.float32, np.float64, np.float16, np.float32, np.float32]
    values = [
        [np.asarray(rng.normal(size=shape)).astype(dtype) for _ in range(4)]
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    variables = [Variable(v[0], name=f"v{k}") for k, v in enumerate(values)]
    together, alone = ExponentialMovingAverage(0.7), ExponentialMovingAverage(0.7, name="alone")
    with num_threads(threads):
        for step in range(4):
            for var, of_step in zip(variables, values, strict=True):
                var.assign(of_step[step])
            together.apply(variables)
            for var in variables:
                alone.apply([var])
    for var, of_var in zip(variables, values, strict=True):
        wide = np.float64 if var.dtype == np.float64 else np.float32
        expected = of_var[0].astype(wide)
        for value in of_var:
            expected = expected - (expected - value.astype(wide)) * wide(1.0 - 0.7)
        got = together.average(var)
        assert got is not None and got.dtype == wide
        np.testing.assert_array_equal(got.numpy(), expected)
        np.testing.assert_array_equal(alone.average(var).numpy(), expected)


def test_a_variable_twice_and_a_shadow_are_averaged_in_order() -> None:
    var = Variable(np.array([8.0]), name="v")
    average = ExponentialMovingAverage(0.5)
    average.apply([var])
    shadow = average.average(var)
    assert shadow is not None
    average.apply([var, shadow])
    var.assign([0.0])
    average.apply([var, var, shadow])  # 8 -> 4 -> 2, and then 8 -> 5 towards the 2
    assert shadow.numpy() == [2.0]
    assert average.average(shadow).numpy() == [5.0]
    average.apply([shadow, var])  # the other way round: 5 -> 3.5 towards the 2, and 2 -> 1
    assert average.average(shadow).numpy() == [3.5]
    assert shadow.numpy() == [1.0]


@pytest.mark.parametrize("bad", [1.5, object(), Variable(np.ones((2, 2)))])
def test_a_list_of_variables_is_wanted(bad: Any) -> None:
    with pytest.raises(TypeError, match="var_list must be an iterable of variables and callables"):
        ExponentialMovingAverage(0.5).apply(bad)
