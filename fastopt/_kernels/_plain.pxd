"""What kernels take as it is, without a conversion."""

cimport numpy as cnp


cdef inline bint is_plain(object array) noexcept:
    """Say whether it is an array of no subclass, contiguous, aligned, and of native byte order."""
    return cnp.PyArray_CheckExact(array) and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>array)
