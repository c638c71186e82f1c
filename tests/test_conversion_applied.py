"""Every kind of gradient, through `apply_gradients` to the variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fastopt as fo

DENSE = np.array([[1.0, 0.0], [0.0, 0.0], [2.0, 3.0]], np.float32)


def torch() -> Any:
    return pytest.importorskip("torch")


def swapped(a: Any) -> np.ndarray:
    array = np.asarray(a)
    return array.astype(array.dtype.newbyteorder("S"))


def frozen(a: Any) -> np.ndarray:
    array = np.array(a)
    array.flags.writeable = False
    return array


KINDS: dict[str, Callable[[], Any]] = {
    "ndarray": lambda: DENSE.copy(),
    "float64": lambda: DENSE.astype(np.float64),
    "float16": lambda: DENSE.astype(np.float16),
    "integers": lambda: DENSE.astype(np.int64),
    "lists": lambda: DENSE.tolist(),
    "fortran": lambda: np.asfortranarray(DENSE),
    "strided": lambda: np.repeat(DENSE, 2, axis=1)[:, ::2],
    "swapped": lambda: swapped(DENSE),
    "read-only": lambda: frozen(DENSE),
    "buffer": lambda: memoryview(DENSE),
    "variable": lambda: fo.Variable(DENSE),
    "tensor": lambda: fo.Tensor(DENSE),
    "slices": lambda: fo.IndexedSlices(DENSE[[2, 0]], [2, 0], (3, 2)),
    "repeated slices": lambda: fo.IndexedSlices([[1.0, 0], [2, 1], [0, 2]], [0, 2, 2]),
    "swapped slices": lambda: fo.IndexedSlices(swapped(DENSE[[2, 0]]), swapped([2, 0])),
    "read-only slices": lambda: fo.IndexedSlices(frozen(DENSE[[2, 0]]), frozen([2, 0])),
    **{
        f"{kind}_{form}": lambda kind=kind, form=form: getattr(sp, f"{form}_{kind}")(DENSE)
        for form in ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")
        for kind in ("matrix", "array")
    },
    "torch": lambda: torch().tensor(DENSE),
    "torch coo": lambda: torch().tensor(DENSE).to_sparse(),
    "torch hybrid": lambda: torch().tensor(DENSE).to_sparse(1),
    "torch csr": lambda: torch().tensor(DENSE).to_sparse_csr(),
    "jax": lambda: pytest.importorskip("jax").numpy.asarray(DENSE),
}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_kinds_do_the_same(kind: str, dtype: type) -> None:
    v = fo.Variable(np.ones((3, 2), dtype))
    fo.GradientDescentOptimizer(0.5).apply_gradients([(KINDS[kind](), v)])
    np.testing.assert_array_equal(v.numpy(), 1 - 0.5 * DENSE)


@pytest.mark.parametrize("dtype", [np.longlong, np.int_, np.intp, np.intc, np.int8, np.uint32])
def test_indices_of_every_integer_dtype(dtype: type) -> None:
    """Quantco/tabmat#84: kernels for C `long` refused an equally wide `long long`."""
    v = fo.Variable(np.ones((3, 2), np.float32))
    slices = fo.IndexedSlices(np.ones((2, 2), np.float32), np.array([0, 2], dtype))
    fo.AdagradOptimizer(0.1).apply_gradients([(slices, v)])
    # Accumulator 0.1 + 1: the expected number is the rule's own, rounded to float32.
    moved = 1 - 0.1 / np.sqrt(1.1)
    np.testing.assert_allclose(v.numpy(), [[moved] * 2, [1] * 2, [moved] * 2], rtol=2e-7)


def test_repeated_coo_entries() -> None:
    """lyst/lightfm#117: duplicates in a COO gradient crashed or counted once."""
    v = fo.Variable(np.zeros((3, 2)))
    g = sp.coo_matrix(([1.0, 5, 2, 4], ([2, 0, 2, 2], [1, 0, 1, 0])), shape=(3, 2))
    fo.GradientDescentOptimizer(1.0).apply_gradients([(g, v)])
    assert v.numpy().tolist() == [[-5, 0], [0, 0], [-4, -3]]


def test_stored_zero_touches_its_row() -> None:
    """neuro-galaxy/torch_brain#49: a stored zero was treated as not touched."""
    v = fo.Variable(np.zeros((3, 1)))
    opt = fo.MomentumOptimizer(1.0, 0.9)
    opt.apply_gradients([(fo.IndexedSlices([[1.0]], [2]), v)])
    v.assign(np.zeros((3, 1)))
    g = sp.csr_matrix(([0.0], [0], [0, 0, 0, 1]), shape=(3, 1))
    opt.apply_gradients([(g, v)])
    np.testing.assert_allclose(v.numpy(), [[0], [0], [-0.9]], rtol=1e-15)
    np.testing.assert_allclose(opt.get_slot(v, "momentum").numpy(), [[0], [0], [0.9]], rtol=1e-15)


@pytest.mark.parametrize(
    "empty", [np.array([], np.int64), np.array([], np.int32), np.array([]), []]
)
def test_empty_slices_are_a_step_without_rows(empty: Any) -> None:
    """tensorflow/tensorflow#57765: empty lists aborted the process."""
    v = fo.Variable(np.ones((5, 3)))
    with fo.Graph().as_default():
        step = fo.create_global_step()
    slices = fo.IndexedSlices(np.zeros((0, 3)), empty)
    fo.AdagradOptimizer(0.1).apply_gradients([(slices, v)], global_step=step)
    assert v.numpy().tolist() == [[1] * 3] * 5
    assert int(step) == 1


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda: np.ones((3, 2), np.complex64), TypeError),
        (lambda: np.ones((3, 2), bool), TypeError),
        (lambda: np.full((3, 2), 2**24 + 1), TypeError),
        (lambda: np.ones((3, 1)), ValueError),
        (lambda: 1.0, ValueError),
        (lambda: fo.IndexedSlices(np.ones((2, 2)), [1, 4]), IndexError),
        (lambda: fo.IndexedSlices(np.ones((1, 2)), [-1]), IndexError),
        (lambda: fo.IndexedSlices(np.ones((1, 2)), [2**40]), IndexError),
        (lambda: fo.IndexedSlices(np.ones((1, 2)), [0], (4, 2)), ValueError),
        (lambda: fo.IndexedSlices(np.ones((1, 2)), [2**41], (2**62, 2)), ValueError),
        (lambda: fo.IndexedSlices(np.ones(3), [0, 1, 2]), ValueError),
        (lambda: sp.csr_array((4, 2)), ValueError),
        (lambda: "gradient", TypeError),
    ],
)
def test_a_bad_gradient_changes_nothing(bad: Callable[[], Any], error: type) -> None:
    """tensorflow/tensorflow#98994, #106494, #113145: skipped rows, aborted processes."""
    a = fo.Variable(np.ones((3, 2), np.float32), name="a")
    b = fo.Variable(np.ones((3, 2), np.float32), name="b")
    with fo.Graph().as_default():
        step = fo.create_global_step()
    opt = fo.AdagradOptimizer(0.1)
    with pytest.raises(error, match=f"'{b.name}'"):
        opt.apply_gradients([(np.ones((3, 2)), a), (bad(), b)], global_step=step)
    assert a.numpy().tolist() == b.numpy().tolist() == [[1, 1]] * 3
    assert int(step) == 0
    assert opt.get_slot_names() == []


def test_gradient_that_is_the_variable_itself() -> None:
    """pytorch/pytorch PR#34904: the step read values that it had just written."""
    memory = np.array([2.0, 4.0])
    v = fo.Variable(memory, copy=False)
    fo.GradientDescentOptimizer(0.25).apply_gradients([(memory, v)])
    assert memory.tolist() == [1.5, 3.0]


@pytest.mark.parametrize("kind", ["ndarray", "slices", "csr_array", "coo_array"])
def test_the_callers_gradient_is_not_changed(kind: str) -> None:
    """pytorch/pytorch PR#34904, scipy/scipy#6603: the step changed the caller's gradient."""
    if kind == "ndarray":
        g: Any = DENSE.copy()
        arrays = [g]
    elif kind == "slices":
        g = fo.IndexedSlices(np.ones((3, 2), np.float32), [2, 0, 2])
        arrays = [g.values, g.indices]
    else:
        row, col, data = np.array([2, 0, 2]), np.array([1, 0, 1]), np.ones(3, np.float32)
        g = sp.coo_array((data, (row, col)), shape=(3, 2))
        arrays = [*g.coords, g.data]
        if kind == "csr_array":
            g = sp.csr_array((data, np.array([1, 1, 0]), np.array([0, 0, 0, 3])), shape=(3, 2))
            arrays = [g.indptr, g.indices, g.data]
    before = [a.tobytes() for a in arrays]
    v = fo.Variable(np.ones((3, 2), np.float32))
    for opt in (fo.AdagradOptimizer(0.1), fo.AdamOptimizer(0.1), fo.MomentumOptimizer(0.1, 0.9)):
        opt.apply_gradients([(g, v)])
    assert [a.tobytes() for a in arrays] == before
