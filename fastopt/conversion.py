"""The one door for gradients: what a user passes becomes readable to the kernels, or an error."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fastopt import _sparse
from fastopt._arrays import cast_real, contiguous, real_array
from fastopt.indexed_slices import IndexedSlices

Array = np.ndarray[Any, Any]


def as_gradient(
    value: Any,
    *,
    like: np.dtype[Any] | None = None,
    shape: tuple[int, ...] | None = None,
    name: str = "gradient",
) -> Array | IndexedSlices | None:
    """Return whatever stands for a gradient as an array or `IndexedSlices` that kernels can read.

    Accepted are None; arrays of NumPy and anything that offers ``__array__``, the buffer protocol
    or ``__dlpack__``, so JAX arrays too; Python numbers and nested lists of them; variables and
    tensors of fastopt; `IndexedSlices`; scipy.sparse matrices and arrays of every format; PyTorch
    CPU tensors, strided, sparse COO (also with dense dimensions) and sparse CSR.

    A sparse matrix becomes the `IndexedSlices` of its touched rows: those with a stored entry,
    whatever its value. Entries stored twice add up in the order in which they are stored. A
    one-dimensional sparse array becomes slices of its entries.

    Parameters
    ----------
    value : object
        What the user passed. It is never changed.
    like : dtype, optional
        The dtype of the variable. Floats are cast to it as NumPy's in-place operators cast
        (``same_kind``), integers only if no value is rounded. Without it floats keep their dtype
        and integers become float64.
    shape : tuple of int, optional
        The shape of the variable. If it is given, the gradient must have it; of slices the rows,
        the indices and, where known, the dense shape must fit it.
    name : str, default "gradient"
        What the value is called in error messages.

    Returns
    -------
    ndarray or IndexedSlices or None
        C-contiguous, aligned, in native byte order; the caller's own memory where that fits.

    Raises
    ------
    TypeError
        If the value cannot be made an array of real numbers (complex, bool, object, strings, ragged
        lists, masked entries, tensors that are on another device or require a gradient), or its
        dtype is not cast to `like`.
    ValueError
        If the shape is not `shape`, or a sparse matrix is malformed.
    IndexError
        If `shape` is given and an index of slices is not a row of it.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse
    >>> from fastopt.conversion import as_gradient
    >>> as_gradient([1, 2], like=np.dtype(np.float32))
    array([1., 2.], dtype=float32)
    >>> as_gradient(scipy.sparse.csr_array([[0.0, 0.0], [0.0, 3.0]])).indices
    array([1])
    """
    if value is None:
        return None
    if type(value) is np.ndarray and value.dtype is like and value.flags.carray:
        if shape is None or value.shape == shape:  # as nearly every gradient of every step
            return value
    try:
        gradient = _read(value, name)
    except TypeError as error:
        if like is None:
            raise
        raise TypeError(f"{error}; its variable has dtype {like}") from error
    if isinstance(gradient, IndexedSlices):
        return _fit_slices(gradient, like, shape, name)
    target = _target(gradient.dtype, like)
    if gradient.dtype != target:
        gradient = cast_real(gradient, target, name)
    if shape is not None and gradient.shape != shape:
        raise ValueError(f"{name} has shape {gradient.shape}, its variable has shape {shape}")
    return contiguous(gradient)


def _read(value: Any, name: str) -> Array | IndexedSlices:
    """Return the value as real numbers in native, aligned memory, of whatever dtype and strides."""
    if isinstance(value, IndexedSlices):
        return value
    if not isinstance(value, np.ndarray):
        if _sparse.is_scipy_sparse(value):
            return IndexedSlices._unchecked(*_sparse.rows_of_scipy(value, name))
        if is_torch_tensor(value):
            return _read_torch(value, name)
    return real_array(value, name)


def is_torch_tensor(value: Any) -> bool:
    """Say whether `value` is a PyTorch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def torch_array(tensor: Any, name: str) -> Array:
    """Return the memory of a strided PyTorch CPU tensor as an array.

    bfloat16, which NumPy lacks, is copied into float32.

    Raises
    ------
    TypeError
        If the tensor is on another device or requires a gradient.
    """
    if tensor.device.type != "cpu":
        raise TypeError(f"{name} is a tensor on device {tensor.device}; move it with .cpu() first")
    if tensor.requires_grad:
        raise TypeError(f"{name} is a tensor that requires a gradient; pass tensor.detach()")
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    try:
        array: Array = tensor.resolve_conj().resolve_neg().numpy()
    except TypeError as error:
        raise TypeError(f"{name} is a tensor of {tensor.dtype}, which NumPy lacks") from error
    return array


def _read_torch(tensor: Any, name: str) -> Array | IndexedSlices:
    """Return a PyTorch tensor of any layout."""
    if tensor.is_nested:
        raise TypeError(f"{name} is a nested tensor, which is not one array")
    layout = str(tensor.layout).removeprefix("torch.")
    if layout == "strided":
        return real_array(torch_array(tensor, name), name)
    if layout not in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"):
        raise TypeError(f"{name} is a tensor of layout {layout}, which is not supported")
    if tensor.requires_grad:
        raise TypeError(f"{name} is a tensor that requires a gradient; pass tensor.detach()")
    shape = tuple(tensor.shape)
    if layout == "sparse_csr" and tensor.values().ndim == 1:  # not a batch of matrices
        return IndexedSlices._unchecked(
            *_sparse.rows_of_csr(
                torch_array(tensor.crow_indices(), name),
                torch_array(tensor.col_indices(), name),
                torch_array(tensor.values(), name),
                shape,
                name,
            )
        )
    if layout != "sparse_coo":
        tensor = _checked_compressed(tensor, layout, name).to_sparse()
    # Read as stored: the public accessors want a coalesced tensor, which would sum in another
    # order.
    coords = torch_array(tensor._indices(), name)
    data = torch_array(tensor._values(), name)
    if not coords.shape[0]:
        raise TypeError(f"{name} is a sparse tensor without sparse dimensions")
    return IndexedSlices._unchecked(*_sparse.rows_of_entries(tuple(coords), data, shape, name))


def _checked_compressed(tensor: Any, layout: str, name: str) -> Any:
    """Return the tensor if its offsets and indices are sound, which PyTorch's conversions trust."""
    by_rows = layout in ("sparse_csr", "sparse_bsr")
    offsets = tensor.crow_indices() if by_rows else tensor.ccol_indices()
    indices = tensor.col_indices() if by_rows else tensor.row_indices()
    try:
        return sys.modules["torch"].sparse_compressed_tensor(
            offsets,
            indices,
            tensor.values(),
            tensor.shape,
            layout=tensor.layout,
            device=tensor.device,
            check_invariants=True,
        )
    except RuntimeError as error:
        raise ValueError(f"{name} is malformed: {error}") from error


def _fit_slices(
    slices: IndexedSlices, like: np.dtype[Any] | None, shape: tuple[int, ...] | None, name: str
) -> IndexedSlices:
    """Return slices whose values the kernels can read, checked against the variable's shape."""
    if shape is not None:
        rows = slices.values.shape
        dense_shape = slices.dense_shape
        if dense_shape is not None and dense_shape != shape:
            raise ValueError(
                f"{name} has dense_shape {dense_shape}, its variable has shape {shape}"
            )
        if len(rows) != len(shape) or rows[1:] != shape[1:]:
            raise ValueError(
                f"{name} has values of shape {rows}, which are not rows of its variable of shape "
                f"{shape}"
            )
        slices.check_range(shape[0], name)
    values = slices.values
    target = _target(values.dtype, like)
    fit = contiguous(values if values.dtype == target else cast_real(values, target, name))
    return slices if fit is values else slices._with_values(fit)


def _target(dtype: np.dtype[Any], like: np.dtype[Any] | None) -> np.dtype[Any]:
    """Return the dtype that a gradient of `dtype` takes."""
    if like is not None:
        return like
    return dtype if dtype.kind == "f" else np.dtype(np.float64)
