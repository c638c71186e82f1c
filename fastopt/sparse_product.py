"""`sparse_matmul`: a scipy.sparse matrix times a variable, with a sparse gradient.

Importing this module also makes ``A @ w`` and ``w @ A`` work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt import _sparse
from fastopt._arrays import compute_dtype, index_array, shown
from fastopt._kernels._grouping import find_out_of_range
from fastopt._kernels._row_set import RowSet
from fastopt._kernels._rows import pooled_gather
from fastopt._kernels._step_memory import empty
from fastopt.autodiff import Differentiable
from fastopt.autodiff.at_hand import record
from fastopt.autodiff.recording import current
from fastopt.autodiff.tensor import HANDLERS
from fastopt.embedding.pooled_gradient import pooled_gradient
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

Array = np.ndarray[Any, Any]


def sparse_matmul(a: Any, b: Any) -> Any:
    """Multiply a scipy.sparse matrix with a dense vector or matrix, ``a @ b``.

    The operator does the same: ``A @ w``, ``A.dot(w)`` and ``w @ A`` for a Variable or Tensor
    ``w``.

    Parameters
    ----------
    a, b : scipy.sparse matrix or array, and Variable, Tensor or array_like
        One of the two is sparse and two-dimensional, of any format. It is a constant, and is not
        changed; its arrays may be kept until the gradient is computed. The other one has one or two
        axes.

    Returns
    -------
    Tensor or ndarray
        The product, of the dtype that scipy gives it. A Tensor if the dense factor is a Variable or
        Tensor.

    Raises
    ------
    TypeError
        If not exactly one factor is sparse, or one does not hold real numbers.
    ValueError
        If the shapes do not fit, or the matrix is malformed.

    Notes
    -----
    The gradient of a Variable of which each stored entry of the matrix reads one row (``A @ w``;
    ``w @ A`` for a 1-D ``w``) is an `IndexedSlices` of the rows that were read: those of columns
    (or rows) of the matrix with a stored entry, whatever its value. Each is listed once. It is so
    for every matrix, however many entries it has, since the rules of optimizers differ for sparse
    and dense gradients. All other gradients are dense. Entries are added in the order in which they
    are stored by row.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([1.0, 2.0, 3.0, 4.0]), name="w")
    >>> A = scipy.sparse.csr_array(([5.0, 1.0], [2, 0], [0, 1, 2]), shape=(2, 4))
    >>> y = fo.sparse_matmul(A, w)
    >>> np.asarray(y)
    array([15.,  1.])
    >>> (gradient,) = fo.gradients(y, [w])
    >>> gradient.indices.tolist(), gradient.values.tolist()
    ([0, 2], [1.0, 5.0])
    """
    sparse_left = _sparse.is_scipy_sparse(a)
    if sparse_left == _sparse.is_scipy_sparse(b):
        which = "both are" if sparse_left else "neither is"
        raise TypeError(
            f"sparse_matmul needs one scipy.sparse matrix and one dense factor, {which} sparse: "
            f"{shown(a)} and {shown(b)}"
        )
    if sparse_left:
        if isinstance(b, Variable) and (product := _pooled_product(a, b)) is not None:
            return product
        return _product(_checked(a, "a"), b)
    return _reflected(a, _checked(b, "b"))


def _product(matrix: Any, dense: Any) -> Any:
    """Return ``matrix @ dense``."""
    values = _dense_factor(dense, "b")
    if matrix.shape[1] != values.shape[0]:
        raise ValueError(
            f"sparse_matmul: a of shape {matrix.shape} and b of shape {values.shape} do not fit"
        )
    out = np.asarray(matrix @ values)
    if not isinstance(dense, Differentiable):
        return out
    if dense._node is not None:  # a computed tensor takes a dense gradient
        return record("sparse_matmul", out, [(dense, lambda g: matrix.T @ g)], matrix)
    return record(
        "sparse_matmul", out, [(dense, _slices_vjp(matrix, dense.shape, dense.dtype))], matrix
    )


def _pooled_product(matrix: Any, dense: Variable) -> Any:
    """Return ``matrix @ dense`` as a pooled look-up: a line of a CSR matrix is a bag.

    Only the rows of the variable are read that the matrix has an entry for. None if anything does
    not fit, or is wrong: the other way says what.
    """
    dtype, shape = dense.dtype, tuple(matrix.shape)
    if (
        matrix.format != "csr"
        or len(shape) != 2
        or dtype not in (np.float32, np.float64)
        or matrix.data.dtype != dtype
        or dense.ndim not in (1, 2)
        or dense.shape[0] != shape[1]
        or matrix.indptr.shape != (shape[0] + 1,)
        or matrix.indptr.dtype.kind != "i"
        or matrix.indices.dtype.kind != "i"
    ):
        return None
    n = int(matrix.indptr[-1])
    if matrix.indptr[0] != 0 or not 0 <= n <= min(matrix.indices.size, matrix.data.size):
        return None
    offsets = np.ascontiguousarray(matrix.indptr, np.int64)
    columns = index_array(matrix.indices[:n], "the column indices")
    entries = np.ascontiguousarray(matrix.data[:n])
    found = None
    try:
        if dense.ndim == 1 and current().records and RowSet.suits(n, shape[1]):
            # The gradient needs to know which rows there are. Told now, it spares the product most
            # of its way through memory, too.
            found = RowSet(columns, shape[1])
            out = found.products(dense._read_rows(found.rows), offsets, entries)
        else:
            out = empty((shape[0], *dense.shape[1:]), dtype)
            pooled_gather(dense._read_at(columns), columns, offsets, entries, None, out)
    except (IndexError, TypeError, ValueError):
        return None

    def vjp(g: Array) -> IndexedSlices:
        wide = np.ascontiguousarray(g, dtype)
        if found is not None:
            return IndexedSlices._unchecked(
                found.sums(wide, offsets, entries), found.rows, dense.shape
            )
        return pooled_gradient(wide, offsets, entries, None, columns, dense.shape)

    return record("sparse_matmul", out, [(dense, vjp)], matrix)


def _slices_vjp(matrix: Any, dense_shape: tuple[int, ...], dtype: Any) -> Any:
    def vjp(g: Array) -> IndexedSlices:
        n = int(matrix.indptr[-1])
        wide = np.float32 if np.result_type(matrix.dtype, g.dtype) == np.float32 else np.float64
        slices = pooled_gradient(
            np.ascontiguousarray(g, wide),
            matrix.indptr.astype(np.int64, copy=False),
            matrix.data[:n].astype(wide, copy=False),
            None,
            index_array(matrix.indices[:n], "the column indices"),
            dense_shape,
        )
        return slices.astype(dtype)

    return vjp


def _reflected(dense: Any, matrix: Any) -> Any:
    """Return ``dense @ matrix``."""
    values = _dense_factor(dense, "a")
    if values.shape[-1] != matrix.shape[0]:
        raise ValueError(
            f"sparse_matmul: a of shape {values.shape} and b of shape {matrix.shape} do not fit"
        )
    out = np.asarray(values @ matrix)
    if not isinstance(dense, Differentiable):
        return out
    if values.ndim == 2 or dense._node is not None:
        return record("sparse_matmul", out, [(dense, lambda g: (matrix @ g.T).T)], matrix)
    shape, dtype = dense.shape, dense.dtype

    def vjp(g: Array) -> IndexedSlices:
        touched = np.flatnonzero(np.diff(matrix.indptr))
        return IndexedSlices._unchecked(
            (matrix @ g)[touched].astype(dtype, copy=False), touched.astype(np.int64), shape
        )

    return record("sparse_matmul", out, [(dense, vjp)], matrix)


def _dense_factor(value: Any, name: str) -> Array:
    array = np.asarray(value._read() if isinstance(value, Differentiable) else value)
    array = array.astype(compute_dtype(array.dtype), copy=False)  # scipy knows no 16 bits
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have one or two axes, got shape {array.shape}")
    return array


def _checked(matrix: Any, name: str) -> Any:
    """Return `matrix` in CSR form after looking at what scipy's compiled code trusts.

    Raises
    ------
    TypeError
        If the entries are not real numbers.
    ValueError
        If it is not two-dimensional or malformed.
    """
    if len(matrix.shape) != 2:
        raise ValueError(
            f"{name} must be two-dimensional, got a sparse array of shape {matrix.shape}"
        )
    if np.dtype(matrix.dtype).kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {matrix.dtype}")
    shape = tuple(int(n) for n in matrix.shape)
    if matrix.format == "coo":
        _check_inside(matrix.row, shape[0], matrix.nnz, name)
        _check_inside(matrix.col, shape[1], matrix.nnz, name)
    elif matrix.format in ("csr", "csc", "bsr"):
        height, width = matrix.blocksize if matrix.format == "bsr" else (1, 1)
        lines, across = shape[0] // height, shape[1] // width
        if matrix.format == "csc":
            lines, across = across, lines
        offsets = np.asarray(matrix.indptr)
        if offsets.shape != (lines + 1,) or offsets[0] != 0 or np.any(offsets[1:] < offsets[:-1]):
            raise ValueError(
                f"{name} is malformed: indptr must rise from 0 over {lines + 1} offsets"
            )
        n = int(offsets[-1])
        if matrix.data.shape[0] < n:
            raise ValueError(
                f"{name} is malformed: {matrix.data.shape[0]} entries, indptr ends with {n}"
            )
        _check_inside(matrix.indices[:n], across, n, name)
    return matrix.tocsr()


def _check_inside(positions: Array, size: int, n: int, name: str) -> None:
    if positions.shape != (n,):
        raise ValueError(f"{name} is malformed: {positions.size} positions for {n} entries")
    k = find_out_of_range(index_array(positions, f"positions of {name}"), size)
    if k >= 0:
        raise ValueError(
            f"{name} is malformed: position {int(positions[k])} of entry {k} lies outside an axis "
            f"of size {size}"
        )


def _with_sparse(function: Any, product: Any) -> None:
    """Let `product` serve a NumPy function whose arguments are differentiable and sparse."""
    dense = HANDLERS[function]

    def handler(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        if not (isinstance(a, _DENSE) and isinstance(b, _DENSE)) and (
            _sparse.is_scipy_sparse(a) or _sparse.is_scipy_sparse(b)
        ):
            if args or kwargs:
                raise TypeError(f"numpy.{function.__name__} of a sparse matrix takes no options")
            return product(a, b)
        return dense(a, b, *args, **kwargs)

    HANDLERS[function] = handler


def _star(a: Any, b: Any) -> Any:
    """Return ``a * b``: for a scipy.sparse *matrix* this is the matrix product.

    Raises
    ------
    TypeError
        For a sparse array, where it is the elementwise product, which is not recorded.
    """
    for x in (a, b):
        if _sparse.is_scipy_sparse(x) and not type(x).__name__.endswith("_matrix"):
            raise TypeError(
                f"the elementwise product with a {type(x).__name__} is not recorded: multiply its "
                f"data with a dense array, or use @ for the matrix product"
            )
    return sparse_matmul(a, b)


# What is known not to be sparse without asking scipy.
_DENSE = (Differentiable, np.ndarray, np.generic, float, int)
_with_sparse(np.matmul, sparse_matmul)
_with_sparse(np.dot, sparse_matmul)
_with_sparse(np.multiply, _star)
