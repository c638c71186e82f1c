"""`Variable`: reading, assigning, copying."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastopt.autodiff.tensor import Differentiable, Tensor
from fastopt.graph import Graph, GraphKeys, trainable_variables
from fastopt.variable import Variable
from tests import strategies

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


def is_storage(a: np.ndarray) -> bool:
    flags = a.flags
    return flags.c_contiguous and flags.aligned and flags.writeable and a.dtype.isnative


class TestReading:
    def test_value_is_a_read_only_view(self) -> None:
        v = Variable(np.ones(2))
        view = v.value
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 3
        v.assign([2, 2])
        assert view.tolist() == [2, 2]

    def test_numpy_is_a_copy(self) -> None:
        v = Variable(np.ones(2))
        a = v.numpy()
        a[:] = 5
        assert v.value.tolist() == [1, 1]

    def test_array_protocol(self) -> None:
        """NumPy 2: copy=None shares if it can, True copies, False shares or fails."""
        v = Variable(np.ones(2))
        assert np.shares_memory(np.asarray(v), v._storage)
        assert not np.asarray(v).flags.writeable
        assert np.asarray(v, copy=False) is not None
        for a in (np.array(v), np.array(v, dtype=np.float32), np.asarray(v, dtype=np.int64)):
            assert not np.shares_memory(a, v._storage)
            assert a.flags.writeable
        with pytest.raises(ValueError, match="without a copy"):
            np.asarray(v, dtype=np.float32, copy=False)

    def test_numbers(self) -> None:
        assert int(Variable(np.int64(3))) == 3
        assert float(Variable(2.5)) == 2.5
        assert range(5)[Variable(np.int64(3))] == 3

    def test_read_value_is_recorded(self) -> None:
        v = Variable(np.ones(2))
        t = v.read_value()
        v.assign([2, 2])
        assert isinstance(t, Tensor)
        assert np.asarray(t).tolist() == [1, 1]

    @given(st.data(), strategies.arrays())
    def test_read_rows(self, data: st.DataObject, a: np.ndarray) -> None:
        v = Variable(a)
        ids = data.draw(strategies.indices(a.shape[0]))
        rows = v._read_rows(ids)
        np.testing.assert_array_equal(rows, a[ids])
        assert not np.shares_memory(rows, v._storage)

    def test_arithmetic_is_recorded(self) -> None:
        v = Variable(np.array([1.0, 2.0]))
        assert isinstance(v, Differentiable)
        for t in (v + 1, 1 + v, v * v, -v, np.exp(v)):
            assert isinstance(t, Tensor)

    def test_attributes_cannot_be_set(self) -> None:
        v = Variable(np.ones(2))
        for name in ("name", "dtype", "shape", "trainable", "constraint", "value"):
            with pytest.raises(AttributeError):
                setattr(v, name, None)


class TestAssigning:
    def test_assign_returns_itself(self) -> None:
        v = Variable(np.zeros(2))
        assert v.assign([1, 2]) is v
        assert v.assign_add([1, 1]) is v
        assert v.assign_sub([0.5, 1]) is v
        assert v.numpy().tolist() == [1.5, 2]

    def test_storage_is_never_replaced(self) -> None:
        v = Variable(np.zeros(2))
        storage = v._storage
        v.assign([1, 2]).assign_add([1, 1]).assign_sub([1, 1])
        assert v._storage is storage

    @pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
    def test_every_change_has_a_version(self, method: str) -> None:
        v = Variable(np.zeros(2))
        before = v._version
        getattr(v, method)([1, 2])
        assert v._version == before + 1

    @pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
    @pytest.mark.parametrize("value", [1.0, [1.0], [[1.0, 2.0]], [1.0, 2.0, 3.0]])
    def test_nothing_is_broadcast(self, method: str, value: Any) -> None:
        v = Variable(np.zeros(2), name="w")
        before = v._version
        with pytest.raises(
            ValueError, match=r"variable 'w' has shape .*, the variable has .*\(2,\)"
        ):
            getattr(v, method)(value)
        assert v.numpy().tolist() == [0, 0]
        assert v._version == before

    @pytest.mark.parametrize(
        ("dtype", "value", "text"),
        [
            (np.int64, [0.5, 1], "not cast to int64"),
            (np.int32, [2**40, 0], "cannot hold exactly"),
            (np.float32, [2**24 + 1, 0], "cannot hold exactly"),
            (np.float32, [1j, 0], "complex128"),
            (np.float32, ["a", "b"], "<U1"),
            (np.bool_, [1, 0], "not cast to bool"),
            (np.float32, None, "NoneType"),
        ],
    )
    def test_values_of_another_kind(self, dtype: type, value: Any, text: str) -> None:
        v = Variable(np.zeros(2, dtype), name="w")
        with pytest.raises(TypeError, match=f"the value assigned to variable 'w' .*{text}"):
            v.assign(value)
        assert not v.numpy().any()

    def test_sparse_values(self) -> None:
        v = Variable(np.zeros((2, 2)))
        with pytest.raises(TypeError, match="is sparse"):
            v.assign(scipy.sparse.eye_array(2).tocsr())

    def test_booleans(self) -> None:
        v = Variable([True, False], name="mask")
        assert v.assign([False, True]).numpy().tolist() == [False, True]
        with pytest.raises(TypeError, match="variable 'mask' holds booleans"):
            v.assign_add([True, True])

    def test_integers(self) -> None:
        step = Variable(np.int64(2**53), trainable=False)
        assert int(step.assign_add(1)) == 2**53 + 1

    def test_its_own_memory(self) -> None:
        """pytorch/pytorch PR#34904: values that had just been written were read."""
        v = Variable(np.array([1.0, 2.0, 3.0]))
        v.assign(v.value[::-1])
        assert v.numpy().tolist() == [3, 2, 1]
        v.assign_add(v)
        assert v.numpy().tolist() == [6, 4, 2]
        v.assign_sub(v.value[::-1])
        assert v.numpy().tolist() == [4, 0, -4]

    @given(st.data(), strategies.arrays())
    def test_equals_numpy(self, data: st.DataObject, a: np.ndarray) -> None:
        b = data.draw(hnp.arrays(F32, a.shape, elements=strategies.numbers(F32)))
        view = data.draw(strategies.any_layout(b))
        cast = b.astype(a.dtype)
        np.testing.assert_array_equal(Variable(a).assign(view).numpy(), cast)
        np.testing.assert_array_equal(Variable(a).assign_add(view).numpy(), a + cast)
        np.testing.assert_array_equal(Variable(a).assign_sub(view).numpy(), a - cast)

    def test_augmented_assignment_and_items_name_the_way(self) -> None:
        v = Variable(np.ones(2))
        with pytest.raises(TypeError, match="assign_add"):
            v += 1
        with pytest.raises(TypeError, match="assign_add"):
            v[0] = 1

    def test_threads_lose_no_addition(self) -> None:
        v = Variable(np.zeros(1000))
        ones = np.ones(1000)

        def work() -> None:
            for _ in range(200):
                v.assign_add(ones)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=work) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        finally:
            sys.setswitchinterval(interval)
        assert v.numpy().tolist() == [800.0] * 1000
        assert v._version == 800


class TestObject:
    def test_repr(self) -> None:
        v = Variable(np.array([1.0, 2.5], np.float32), name="w")
        assert repr(v) == "Variable([1. , 2.5], name='w', shape=(2,), dtype=float32)"
        step = Variable(np.int64(3), trainable=False, name="step")
        assert repr(step) == "Variable(3, name='step', shape=(), dtype=int64, trainable=False)"

    def test_repr_of_a_large_table_is_short(self) -> None:
        assert len(repr(Variable(np.ones((100_000, 64), np.float32)))) < 400

    def test_identity(self) -> None:
        a, b = Variable(np.ones(2)), Variable(np.ones(2))
        assert len({a, b}) == 2
        assert {a: 1, b: 2}[a] == 1
        assert weakref.ref(a)() is a

    def test_no_cycles(self) -> None:
        gc.collect()
        gc.disable()
        try:
            v = Variable(np.ones(2))
            ref = weakref.ref(v)
            del v
            assert ref() is None
        finally:
            gc.enable()

    @pytest.mark.parametrize(
        "make", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))]
    )
    def test_copies(self, make: Any) -> None:
        v = Variable(np.array([1.0, 2.0]), trainable=False, name="w", constraint=np.abs)
        other = make(v)
        assert other.name == "w_1"
        assert other.trainable is False
        assert other.constraint is np.abs
        assert other.dtype == v.dtype
        assert other.graph is v.graph
        other.assign([5, 5])
        assert v.numpy().tolist() == [1, 2]
        assert is_storage(other._storage)

    def test_a_copy_of_shared_memory_is_its_own(self) -> None:
        memory = np.ones(3)
        other = copy.deepcopy(Variable(memory, copy=False))
        other.assign([2, 2, 2])
        assert memory.tolist() == [1, 1, 1]

    def test_deepcopy_keeps_what_is_shared(self) -> None:
        v = Variable(1.0)
        pair = copy.deepcopy([v, v])
        assert pair[0] is pair[1]
        assert pair[0] is not v

    def test_a_pickle_is_restored_under_its_name_in_a_fresh_graph(self) -> None:
        data = pickle.dumps(Variable(np.ones(2), name="w"))
        with Graph().as_default() as fresh:
            w = pickle.loads(data)
            assert w.name == "w"
            assert w.graph is fresh
            assert trainable_variables()[0] is w

    def test_out_of_band_pickle_of_read_only_buffers(self) -> None:
        buffers: list[pickle.PickleBuffer] = []
        v = Variable(np.arange(4.0))
        data = pickle.dumps(v, protocol=5, buffer_callback=buffers.append)
        frozen = [bytes(b.raw()) for b in buffers]
        w = pickle.loads(data, buffers=frozen)
        assert is_storage(w._storage)
        assert w.assign_add(np.ones(4)).numpy().tolist() == [1, 2, 3, 4]

    def test_trainable_decides_the_collection(self, graph: Graph) -> None:
        a, b = Variable(1.0), Variable(1.0, trainable=False)
        assert (a.trainable, b.trainable) == (True, False)
        assert trainable_variables() == [a]
        assert len(graph.get_collection(GraphKeys.GLOBAL_VARIABLES)) == 2


@pytest.mark.parametrize("bad", [None, 1, "always"])
def test_copy_is_a_flag(bad: Any) -> None:
    """NumPy's ``copy=None`` shares memory where it can; here nobody shall have to guess."""
    with pytest.raises(TypeError, match="copy must be True or False, got "):
        Variable(np.ones(2), copy=bad)


@pytest.mark.parametrize("bad", ["spam", 3])
def test_what_is_no_dtype_is_named(bad: Any) -> None:
    with pytest.raises(TypeError, match="dtype must be a NumPy dtype, got "):
        Variable(np.ones(2), dtype=bad)
