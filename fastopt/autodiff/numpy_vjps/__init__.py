"""The table of derivatives of NumPy's functions, by reason. Importing it fills `HANDLERS`."""

from fastopt.autodiff.numpy_vjps import (
    einsum,
    elementwise,
    indexing,
    linalg,
    reductions,
    shaping,
    special,
)

__all__ = ["einsum", "elementwise", "indexing", "linalg", "reductions", "shaping", "special"]
