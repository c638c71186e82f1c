"""What a plan accepts, what it refuses, and who may use it when."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastopt._kernels._plan import Plan
from tests.kernels.support import Key, Slices, threads

F32 = np.float32


def plan_of(
    w: Any, rule: str = "gradient_descent", slots: tuple[Any, ...] = (), untouched: Any = "skip"
) -> tuple[Plan, Key]:
    key = Key()
    return Plan(rule, [key], [w], [slots], Slices, untouched), key


def step(plan: Plan, key: Key, gradient: Any, scalars: Any = (1.0,)) -> None:
    assert plan.bind([(gradient, key)])
    plan.run(scalars)
    plan.release()


# ---------------------------------------------------------------------------- construction


def test_arrays_that_do_not_fit() -> None:
    """pydata/bottleneck#104, #381, scikit-learn/scikit-learn#10624, explosion/thinc PR#664."""
    good = np.ones((4, 2), F32)
    frozen = good.copy()
    frozen.flags.writeable = False
    memory = np.zeros(17, np.uint8)
    for bad in (
        frozen,
        good[:, ::2],
        np.asfortranarray(good),
        good.astype(">f4"),
        memory[1:].view(F32),
        [1.0],
    ):
        with pytest.raises(ValueError, match="array 0 must be a writable"):
            plan_of(bad)
        with pytest.raises(ValueError, match="slot 'accumulator' of array 0 must be a writable"):
            plan_of(good, "adagrad", (bad,))
    for dtype in (np.int16, np.int32, np.complex64, np.bool_):
        with pytest.raises(TypeError, match="array 0 must be float32 or float64, not"):
            plan_of(np.ones(3, dtype))
    with pytest.raises(ValueError, match=r"slot 'v' .* shape \(4, 2\), not float32 \(2, 4\)"):
        plan_of(good, "adam", (np.ones((4, 2), F32), np.ones((2, 4), F32)))
    with pytest.raises(ValueError, match="float64"):
        plan_of(good, "adagrad", (np.ones((4, 2)),))
    with pytest.raises(ValueError, match="2 came"):
        plan_of(good, "adagrad", (np.ones((4, 2), F32), np.ones((4, 2), F32)))


def test_arguments_that_do_not_fit() -> None:
    w = np.ones(3, F32)
    with pytest.raises(ValueError, match="no rule 'sgd'; there are gradient_descent, momentum"):
        plan_of(w, "sgd")
    with pytest.raises(ValueError, match="untouched"):
        plan_of(w, untouched="forget")
    with pytest.raises(ValueError, match="leaves untouched rows"):
        plan_of(w, untouched="update")
    with pytest.raises(ValueError, match="1 keys, 2 arrays"):
        Plan("gradient_descent", [Key()], [w, w], [()], Slices)
    with pytest.raises(TypeError, match="weak"):
        Plan("gradient_descent", [3], [w], [()], Slices)


def test_overlapping_arrays() -> None:
    memory = np.ones(100, F32)
    keys = [Key(), Key()]
    with pytest.raises(ValueError, match="overlap"):
        Plan("gradient_descent", keys, [memory[:51], memory[50:]], [(), ()], Slices)
    with pytest.raises(ValueError, match="overlap"):
        plan_of(memory, "adagrad", (memory,))
    plan = Plan("gradient_descent", keys, [memory[:50], memory[50:]], [(), ()], Slices)
    assert plan.bind([(np.ones(50, F32), key) for key in keys])


# ---------------------------------------------------------------------------- what binds


def test_gradients_that_do_not_fit_change_nothing() -> None:
    """tensorflow/tensorflow#106494, #62978, #98994, CVE-2021-37655: crashes and foreign memory."""
    w = np.ones((4, 2), F32)
    a = np.full((4, 2), 0.5, F32)
    plan, key = plan_of(w, "adagrad", (a,))
    v, i = np.ones((2, 2), F32), np.array([0, 3])
    good = np.ones((4, 2), F32)
    misaligned = np.zeros(33, np.uint8)[1:].view(F32).reshape(4, 2)

    class Subclass(np.ndarray):
        pass

    class MoreSlices(Slices):
        pass

    bad = [
        np.ones((4, 2)),
        np.ones((2, 4), F32),
        np.ones(8, F32),
        np.ones((), F32),
        np.ones((4, 2, 1), F32),
        good[::-1],
        np.asfortranarray(good),
        good.astype(">f4"),
        misaligned,
        good.view(Subclass),
        good.tolist(),
        None,
        1.0,
        w,
        a,
        w[:],
        MoreSlices(v, i),
        Slices(v, np.array([0, 4])),
        Slices(v, np.array([-1, 0])),
        Slices(v, np.array([2**40, 0])),
        Slices(v, np.array([0, 1, 2])),
        Slices(v, np.array([[0, 1]])),
        Slices(v, np.array([True, False])),
        Slices(v, np.array([0.0, 2.0])),
        Slices(v, np.array([0, 1], np.uint64)),
        Slices(v, np.zeros(8, np.int16)[:2]),  # eight bytes of them would be good indices
        Slices(v, i.astype(">i8")),
        Slices(v, np.array([0, 9, 3, 9])[::2]),
        Slices(v, [0, 3]),
        Slices(v.tolist(), i),
        Slices(v.astype(np.float64), i),
        Slices(np.ones((2, 3), F32), i),
        Slices(np.ones(2, F32), i),
        Slices(np.ones((), F32), i[:1]),
        Slices(np.ones((2, 1, 2), F32), i),
        Slices(w[:2], i),
        Slices(a[1:3], i),
        Slices(v, i, (5, 2)),
        Slices(v, i, (2**62, 2)),
    ]
    for gradient in bad:
        assert plan.bind([(gradient, key)]) is False, gradient
        with pytest.raises(RuntimeError, match="no gradients are bound"):
            plan.run((1.0,))
        assert plan.rows_touched == plan.dense_parameters == 0
    np.testing.assert_array_equal(w, 1)
    np.testing.assert_array_equal(a, 0.5)
    for gradient in (good, Slices(v, i), Slices(v, i, (4, 2)), Slices(v, i.astype(np.int32))):
        step(plan, key, gradient)


def test_lists_that_do_not_fit() -> None:
    keys = [Key(), Key()]
    arrays = [np.ones(3, F32), np.ones(3, F32)]
    plan = Plan("gradient_descent", keys, arrays, [(), ()], Slices)
    g = np.ones(3, F32)
    good = [(g, keys[0]), (g, keys[1])]
    assert plan.bind(good)
    plan.release()
    for bad in (
        good[:1],
        good + good[:1],
        good[::-1],
        [],
        tuple(good),
        iter(good),
        None,
        [list(pair) for pair in good],
        [(*pair, 1) for pair in good],
        [(g, Key()), (g, keys[1])],
        [good[0], None],
    ):
        assert plan.bind(bad) is False  # type: ignore[arg-type]
    for array in arrays:
        np.testing.assert_array_equal(array, 1)


def test_no_variables_at_all() -> None:
    plan = Plan("gradient_descent", [], [], [], Slices)
    assert plan.bind([])
    plan.run((1.0,))
    plan.release()


def test_read_only_gradients_are_accepted() -> None:
    """cython/cython#1605, dask/distributed#1978: read-only data was refused where it is read."""
    w = np.ones((3, 2), F32)
    plan, key = plan_of(w)
    g, v, i = np.ones((3, 2), F32), np.ones((1, 2), F32), np.array([2])
    for array in (g, v, i):
        array.flags.writeable = False
    step(plan, key, g)
    step(plan, key, Slices(v, i))
    np.testing.assert_array_equal(w, [[0, 0], [0, 0], [-1, -1]])


def test_one_gradient_may_serve_two_variables() -> None:
    keys = [Key(), Key()]
    arrays = [np.ones(3, F32), np.ones(3, F32)]
    plan = Plan("gradient_descent", keys, arrays, [(), ()], Slices)
    g = np.ones(3, F32)
    assert plan.bind([(g, keys[0]), (g, keys[1])])
    plan.run((0.5,))
    for array in arrays:
        np.testing.assert_array_equal(array, 0.5)


@pytest.mark.parametrize("name", ["longlong", "int_", "intp", "intc"])
def test_index_dtypes_are_judged_by_kind_and_size(name: str) -> None:
    """Quantco/tabmat#84, ansys/pymapdl#14: equally wide C types were refused."""
    w = np.ones((3, 2), F32)
    plan, key = plan_of(w)
    step(plan, key, Slices(np.ones((2, 2), F32), np.array([0, 2], getattr(np, name))))
    np.testing.assert_array_equal(w, [[0, 0], [1, 1], [0, 0]])


def test_indices_that_change_after_bind_do_no_harm() -> None:
    """What was checked is what is used."""
    w = np.zeros((5, 2), F32)
    for rule, slots in (("gradient_descent", ()), ("momentum", (np.zeros((5, 2), F32),))):
        w[:] = 0
        plan, key = plan_of(w, rule, slots)
        indices = np.array([1, 3])
        assert plan.bind([(Slices(np.ones((2, 2), F32), indices), key)])
        indices[:] = 2**40
        plan.run((1.0,) if rule == "gradient_descent" else (1.0, 0.0))
        np.testing.assert_array_equal(w[:, 0], [0, -1, 0, -1, 0])


def test_the_shape_of_an_array_may_be_set_afterwards() -> None:
    w = np.ones((4, 2), F32)
    plan, key = plan_of(w)
    del_shape = w.view()
    del_shape.shape = (8,)
    step(plan, key, np.ones((4, 2), F32))
    np.testing.assert_array_equal(del_shape, 0)


@pytest.mark.parametrize("threads_", [1, 2])
def test_rows_beyond_two_to_the_31_elements(tmp_path: Path, threads_: int) -> None:
    """CVE-2019-16778, pytorch/FBGEMM PR#1186: row number times width was computed in 32 bits."""
    rows, width = 70_000_000, 32
    table = np.memmap(tmp_path / "table", np.float32, "w+", shape=(rows, width))
    plan, key = plan_of(table)
    last = np.array([rows - 1], np.int32)
    with threads(threads_):
        step(plan, key, Slices(np.ones((1, width), F32), last))
        step(plan, key, Slices(np.ones((3, width), F32), np.array([5, rows - 3, 5])))
    np.testing.assert_array_equal(table[rows - 1], -1)
    np.testing.assert_array_equal(table[rows - 3], -1)
    np.testing.assert_array_equal(table[5], -2)
    others = [0, 1, 4, 6, rows // 2, rows - 4, rows - 2]
    np.testing.assert_array_equal(table[others], 0)
    del plan, table


def test_rows_beyond_two_to_the_32(tmp_path: Path) -> None:
    rows = 2**32 + 10
    try:
        table = np.memmap(tmp_path / "table", np.float32, "w+", shape=(rows,))
    except OSError:
        pytest.skip("no room for a sparse file of 16 GiB")
    plan, key = plan_of(table)
    ids = np.array([rows - 1, 3, rows - 1, 2**32])
    step(plan, key, Slices(np.array([1, 2, 4, 8], F32), ids))
    np.testing.assert_array_equal(table[[rows - 1, 3, 2**32]], [-5, -2, -8])
    np.testing.assert_array_equal(table[[0, 2, 4, 9, rows - 2]], 0)
    assert plan.rows_touched == 3
    del plan, table


# ---------------------------------------------------------------------------- running


def test_scalars_of_each_variable() -> None:
    keys = [Key(), Key(), Key()]
    arrays = [np.zeros(3, F32), np.zeros((3, 1)), np.zeros(3, F32)]
    plan = Plan("gradient_descent", keys, arrays, [(), (), ()], Slices)
    gradients = [np.ones(3, F32), Slices(np.ones((1, 1)), np.array([1])), np.ones(3, F32)]
    pairs = list(zip(gradients, keys, strict=True))
    assert plan.bind(pairs)
    assert plan.dense_parameters == 6
    assert plan.rows_touched == 1
    plan.run([(1.0,), (2.0,), (3.0,)])
    plan.run((10,))
    plan.release()
    np.testing.assert_array_equal(arrays[0], -11)
    np.testing.assert_array_equal(arrays[1][:, 0], [0, -12, 0])
    np.testing.assert_array_equal(arrays[2], -13)


def test_wrong_scalars_change_nothing() -> None:
    w = np.ones(3, F32)
    plan, key = plan_of(w)
    assert plan.bind([(np.ones(3, F32), key)])
    with pytest.raises(ValueError, match="'gradient_descent' wants scalars .*'lr'.*, 2 came"):
        plan.run((1.0, 2.0))
    with pytest.raises(ValueError, match="2 tuples of scalars for 1 variables"):
        plan.run([(1.0,), (1.0,)])
    with pytest.raises(TypeError):
        plan.run(("x",))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        plan.run(1.0)  # type: ignore[arg-type]
    np.testing.assert_array_equal(w, 1)
    plan.run((1.0,))  # still bound
    np.testing.assert_array_equal(w, 0)


def test_scalars_that_are_not_finite_in_the_type_of_an_array_change_nothing() -> None:
    w, wide = np.ones(3, F32), np.ones(3)
    plan, key = plan_of(w)
    wide_plan, wide_key = plan_of(wide)
    keys = [Key(), Key()]
    both = Plan("gradient_descent", keys, [wide, w], [(), ()], Slices)
    assert plan.bind([(np.ones(3, F32), key)])
    assert wide_plan.bind([(np.ones(3), wide_key)])
    assert both.bind([(np.ones(3), keys[0]), (np.ones(3, F32), keys[1])])
    text = "scalar 'lr' of rule 'gradient_descent' is 1e\\+39, .* in float32"
    for beyond in (plan, both):
        with pytest.raises(OverflowError, match=text):
            beyond.run((1e39,))
        with pytest.raises(OverflowError, match="rate 1e\\+39 of decay of array"):
            beyond.run((1.0,), 1e39)
    with pytest.raises(OverflowError, match=text):
        both.run([(1.0,), (1e39,)])
    with pytest.raises(OverflowError, match="is inf, .* in float64"):
        wide_plan.run((float("inf"),))
    np.testing.assert_array_equal(w, 1)
    np.testing.assert_array_equal(wide, 1)
    both.run([(1e39,), (1.0,)])
    np.testing.assert_array_equal(wide, 1 - 1e39)
    np.testing.assert_array_equal(w, 0)


def test_running_again_with_the_same_gradients() -> None:
    """Sorted look-ups stay usable, and so does the count of rows between two runs."""
    for n in (10, 5000):
        w = np.zeros((7, 2), F32)
        a = np.zeros((7, 2), F32)
        plan, key = plan_of(w, "momentum", (a,))
        ids = np.arange(n) % 3
        assert plan.bind([(Slices(np.ones((n, 2), F32), ids), key)])
        for _ in range(3):
            plan.run((0.0, 0.0))
            assert plan.rows_touched == 3
            np.testing.assert_array_equal(a.sum(), 2 * n)


def test_dense_and_sparse_by_turns() -> None:
    keys = [Key() for _ in range(3)]
    shape = (400, 200)
    arrays = [np.zeros(shape, F32) for _ in keys]
    plan = Plan("gradient_descent", keys, arrays, [()] * 3, Slices)
    dense = np.ones(shape, F32)
    rows = Slices(np.ones((2, 200), F32), np.array([399, 399]))
    with threads(3):
        for turn in range(4):
            gradients = [rows if (turn + k) % 2 else dense for k in range(3)]
            assert plan.bind(list(zip(gradients, keys, strict=True)))
            assert plan.dense_parameters == (160_000 if turn % 2 == 0 else 80_000)
            plan.run((1.0,))
            plan.release()
    for array in arrays:
        np.testing.assert_array_equal(array[:399], -2)
        np.testing.assert_array_equal(array[399], -6)


def test_all_dense_after_one_that_was_sparse() -> None:
    """The tasks of several threads are cut anew also where nothing but that has changed."""
    keys = [Key(), Key()]
    arrays = [np.zeros((400, 200), F32) for _ in keys]
    plan = Plan("gradient_descent", keys, arrays, [(), ()], Slices)
    dense = np.ones((400, 200), F32)
    rows = Slices(np.ones((1, 200), F32), np.array([399]))
    with threads(3):
        for second in (rows, dense):
            assert plan.bind([(dense, keys[0]), (second, keys[1])])
            plan.run((1.0,))
            plan.release()
    np.testing.assert_array_equal(arrays[0], -2)
    np.testing.assert_array_equal(arrays[1][:399], -1)


def test_gradients_are_held_while_bound_and_let_go_after() -> None:
    w = np.ones((3, 2), F32)
    plan, key = plan_of(w)
    for gradient in (np.ones((3, 2), F32), Slices(np.ones((3, 2), F32), np.arange(3))):
        array = gradient if isinstance(gradient, np.ndarray) else gradient.values
        count = sys.getrefcount(array)
        assert plan.bind([(gradient, key)])
        assert sys.getrefcount(array) == count + 1
        assert plan.bind([(gradient, key)])  # again
        assert sys.getrefcount(array) == count + 1
        plan.release()
        assert sys.getrefcount(array) == count
        plan.release()  # nothing to do
        assert not plan.bind([(gradient, key), (gradient, key)])
        assert sys.getrefcount(array) == count
        assert plan.bind([(gradient, key)])
    del plan
    assert sys.getrefcount(array) == count


def test_a_failed_bind_lets_go_of_what_it_took() -> None:
    keys = [Key(), Key()]
    plan = Plan("gradient_descent", keys, [np.ones(3, F32), np.ones(3, F32)], [(), ()], Slices)
    g = np.ones(3, F32)
    count = sys.getrefcount(g)
    assert not plan.bind([(g, keys[0]), (np.ones(4, F32), keys[1])])
    assert sys.getrefcount(g) == count


def test_a_failed_bind_counts_nothing() -> None:
    keys = [Key() for _ in range(3)]
    plan = Plan("gradient_descent", keys, [np.ones((3, 2), F32) for _ in keys], [()] * 3, Slices)
    rows = Slices(np.ones((1, 2), F32), np.array([1]))
    gradients = [np.ones((3, 2), F32), rows, np.ones(4, F32)]
    assert not plan.bind(list(zip(gradients, keys, strict=True)))
    assert plan.dense_parameters == plan.rows_touched == 0


# ---------------------------------------------------------------------------- keys


def test_keys_are_held_weakly_and_memory_goes_with_them() -> None:
    w = np.ones(3, F32)
    gradient = np.ones(3, F32)  # made before, it cannot lie where the weights were
    memory = weakref.ref(w)
    plan, key = plan_of(w)
    del w
    gc.collect()
    assert memory() is not None
    dead = weakref.ref(key)
    del key
    assert dead() is None
    assert memory() is None
    fresh = [Key() for _ in range(100)]  # one of them may have the address of the dead one
    assert not any(plan.bind([(gradient, each)]) for each in fresh)


def test_memory_goes_with_the_key_after_a_step_too() -> None:
    w = np.ones(3, F32)
    memory = weakref.ref(w)
    plan, key = plan_of(w)
    step(plan, key, np.ones(3, F32))
    del w, key
    assert memory() is None


def test_a_key_that_dies_while_bound_leaves_the_memory_until_release() -> None:
    w = np.ones(3, F32)
    memory = weakref.ref(w)
    plan, key = plan_of(w)
    assert plan.bind([(np.ones(3, F32), key)])
    del w, key
    assert memory() is not None
    plan.run((0.5,))
    np.testing.assert_array_equal(memory(), 0.5)
    plan.release()
    assert memory() is None


def test_keys_are_told_apart_by_identity() -> None:
    class Same:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    a, b = Same(), Same()
    plan = Plan("gradient_descent", [a], [np.ones(1, F32)], [()], Slices)
    assert plan.bind([(np.ones(1, F32), a)])
    plan.release()
    assert not plan.bind([(np.ones(1, F32), b)])


# ---------------------------------------------------------------------------- many threads


def in_thread(function: Any) -> Any:
    result: list[Any] = []

    def call() -> None:
        try:
            result.append(function())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return result[0]


def test_one_user_at_a_time() -> None:
    w = np.ones(3, F32)
    plan, key = plan_of(w)
    pairs = [(np.ones(3, F32), key)]
    assert plan.bind(pairs)
    assert in_thread(lambda: plan.bind(pairs)) is False
    assert isinstance(in_thread(lambda: plan.run((1.0,))), RuntimeError)
    assert isinstance(in_thread(plan.release), RuntimeError)
    np.testing.assert_array_equal(w, 1)
    plan.release()
    assert in_thread(lambda: plan.bind(pairs) and (plan.run((1.0,)), plan.release())) == (
        None,
        None,
    )
    np.testing.assert_array_equal(w, 0)


def test_gradients_whose_properties_use_the_plan() -> None:
    """Python runs in the middle of bind; it finds the plan busy."""
    w = np.ones((3, 2), F32)
    found: list[Any] = []

    class Nosy:
        indices = np.array([0])
        dense_shape = None

        @property
        def values(self) -> Any:
            found.append(plan.bind(pairs))
            for call in (lambda: plan.run((1.0,)), plan.release, lambda: plan.rows_touched):
                with pytest.raises(RuntimeError):
                    call()
            pairs.clear()
            return np.ones((1, 2), F32)

    key = Key()
    plan = Plan("gradient_descent", [key], [w], [()], Nosy)
    pairs: list[Any] = [(Nosy(), key)]
    assert plan.bind(pairs)
    assert found == [False]
    plan.run((1.0,))
    np.testing.assert_array_equal(w, [[0, 0], [1, 1], [1, 1]])


def test_a_list_that_a_property_cuts_off_binds_nothing() -> None:
    class Cutting(Slices):
        @property
        def dense_shape(self) -> None:
            del pairs[1:]

        @dense_shape.setter
        def dense_shape(self, value: Any) -> None: ...

    keys = [Key(), Key()]
    arrays = [np.ones((3, 2), F32) for _ in keys]
    plan = Plan("gradient_descent", keys, arrays, [(), ()], Cutting)
    rows = Cutting(np.ones((1, 2), F32), np.array([0]))
    pairs: list[Any] = [(rows, keys[0]), (np.ones((3, 2), F32), keys[1])]
    assert plan.bind(pairs) is False


def test_an_error_in_a_property_leaves_the_plan_free() -> None:
    class Broken:
        @property
        def values(self) -> Any:
            raise KeyError("mine")

    key = Key()
    plan = Plan("gradient_descent", [key], [np.ones((3, 2), F32)], [()], Broken)
    with pytest.raises(KeyError, match="mine"):
        plan.bind([(Broken(), key)])
    assert plan.bind([(np.ones((3, 2), F32), key)])


def test_many_threads_with_plans_of_their_own_on_the_same_memory() -> None:
    """Without locks they race as Hogwild does, but only in numbers."""
    table, accumulator = np.ones((2000, 16), F32), np.ones((2000, 16), F32)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            plan, key = plan_of(table, "adagrad", (accumulator,))
            for _ in range(50):
                ids = rng.integers(0, 2000, 3000)
                step(plan, key, Slices(np.ones((3000, 16), F32), ids), (0.01,))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    with threads(2):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures
    assert np.isfinite(table).all()
    assert (table < 1).all()


@pytest.mark.parametrize("n_rows", [1, 7, 8, 9, 100, 5000, 1_000_000])
@pytest.mark.parametrize("n", [0, 1, 100, 40_000])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_rows_are_counted_before_and_after_a_run(n_rows: int, n: int, n_threads: int) -> None:
    """Gradient descent doesn't sort, and counts in another way once it has run."""
    rng = np.random.default_rng(14)
    with threads(n_threads):
        for rule, slots in (("gradient_descent", ()), ("adagrad", (np.ones((n_rows, 2), F32),))):
            plan, key = plan_of(np.zeros((n_rows, 2), F32), rule, slots)
            for early in (False, True):
                ids = rng.integers(0, n_rows, n)
                rows = len(set(ids.tolist()))
                assert plan.bind([(Slices(np.ones((n, 2), F32), ids), key)])
                if early:
                    assert plan.rows_touched == rows
                for _ in range(2):
                    plan.run((1.0,))
                    assert plan.rows_touched == rows
                plan.release()
                assert plan.rows_touched == rows


@pytest.mark.parametrize("width", [9000, 10_000, 20_000])
def test_wide_rows_of_a_rule_that_sums_over_them(width: int) -> None:
    """Each is a task: more of them than a variable has chunks."""
    gradient = np.random.default_rng(width).normal(size=(64, width)).astype(F32)
    results = []
    for n in (1, 2):
        w, accumulator = np.ones((64, width), F32), np.full(64, 0.1, F32)
        plan, key = plan_of(w, "rowwise_adagrad", (accumulator,))
        with threads(n):
            step(plan, key, gradient, (0.1, 0.0))
        results.append((w, accumulator))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
    squares = np.square(gradient, dtype=np.float64).mean(axis=1)
    np.testing.assert_allclose(results[0][1], 0.1 + squares, rtol=1e-5)
