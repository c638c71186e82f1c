"""The table of derivatives of NumPy's functions, by reason. Importing it fills `HANDLERS`."""

from fastopt.autodiff.numpy_vjps import elementwise

__all__ = ["elementwise"]
