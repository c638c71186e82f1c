# cython: language_level=3
"""What every step counts and leaves behind: too small for Python, which would take longer than the
update of a small variable.

All of it happens under the interpreter's lock, so that each step counts whatever other threads do.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t

import numpy as np

cimport cython
cimport numpy as cnp

cnp.import_array()

cdef enum:
    MOST_POWERS = 4


@cython.auto_pickle(False)
cdef class Versioned:
    """Knows how often its values have changed in place."""

    cdef public int64_t _version


def raise_versions(list pairs not None):
    """Count a change of the second of each pair.

    Parameters
    ----------
    pairs : list of (object, Versioned)

    Raises
    ------
    TypeError
        If an entry is no such pair; those before it have been counted.
    """
    cdef Py_ssize_t k
    cdef PyObject* pair
    for k in range(PyList_GET_SIZE(pairs)):
        pair = <PyObject*>PyList_GET_ITEM(pairs, k)
        if not PyTuple_CheckExact(<object>pair) or PyTuple_GET_SIZE(<object>pair) != 2:
            raise TypeError(f"entry {k} is no pair")
        (<Versioned?><object>PyTuple_GET_ITEM(<object>pair, 1))._version += 1


cdef inline bint is_int64(cnp.ndarray counter) noexcept:
    return (
        cnp.PyArray_ISSIGNED(counter)
        and cnp.PyArray_ISINTEGER(counter)
        and cnp.PyArray_ITEMSIZE(counter) == 8
    )


cdef object next_of(cnp.ndarray counter):
    """Return what a counter is after one more step; None if its dtype can't tell that from now."""
    cdef int64_t now
    if is_int64(counter):
        now = (<int64_t*>cnp.PyArray_DATA(counter))[0]
        return None if now == INT64_MAX else now + 1
    with np.errstate(over="ignore"):
        after = np.add(counter, 1, dtype=counter.dtype)
    # Integers would begin anew from below, floats stop where the next number is more than 1 away.
    return after.item() if after > counter else None


def can_count(cnp.ndarray counter not None):
    """Whether a counter has room for one more step.

    Parameters
    ----------
    counter : ndarray
        Of no dimension, aligned, of native byte order, of integers or floats.

    Returns
    -------
    bool
    """
    if is_int64(counter):  # as nearly every one
        return (<int64_t*>cnp.PyArray_DATA(counter))[0] != INT64_MAX
    return next_of(counter) is not None


def count(cnp.ndarray counter not None):
    """Add one to a counter, and return what it is then.

    Parameters
    ----------
    counter : ndarray
        As `can_count` takes it, and writable.

    Returns
    -------
    int or float

    Raises
    ------
    OverflowError
        If it has no room for that; nothing was changed then.
    """
    after = next_of(counter)
    if after is None:
        raise OverflowError(f"{counter.item()} is the last number that {counter.dtype} counts")
    if is_int64(counter):
        (<int64_t*>cnp.PyArray_DATA(counter))[0] = after
    else:
        counter[()] = after
    return after


@cython.auto_pickle(False)
cdef class StepRecord:
    """What a step has done.

    Parameters
    ----------
    name, type : str
    variables : tuple of weakref
    sparse_rows, dense_parameters : int
    step : int or float or None
    """

    cdef public object name
    cdef public object type
    cdef public tuple _variables
    cdef public object sparse_rows
    cdef public object dense_parameters
    cdef public object step

    def __init__(
        self, name, type, tuple variables=(), sparse_rows=0, dense_parameters=0, step=None
    ):
        self.name = name
        self.type = type
        self._variables = variables
        self.sparse_rows = sparse_rows
        self.dense_parameters = dense_parameters
        self.step = step


@cython.auto_pickle(False)
cdef class Powers:
    """Powers of numbers that have names, in arrays that others see.

    Parameters
    ----------
    names : tuple of str
        At most four.
    arrays : tuple of ndarray
        The powers: float64, of no dimension, writable.

    Raises
    ------
    ValueError
        If the numbers of names and arrays differ, or an array is another.
    """

    cdef tuple names
    cdef tuple arrays           # whose memory is at:
    cdef double* at[MOST_POWERS]
    cdef Py_ssize_t n

    def __init__(self, tuple names not None, tuple arrays not None):
        self.n = 0
        if len(names) != len(arrays) or len(names) > MOST_POWERS:
            raise ValueError(f"{len(names)} names, {len(arrays)} powers")
        for k, array in enumerate(arrays):
            if (
                not cnp.PyArray_CheckExact(array)
                or not cnp.PyArray_ISCARRAY(array)
                or cnp.PyArray_TYPE(array) != cnp.NPY_DOUBLE
                or cnp.PyArray_NDIM(array) != 0
            ):
                raise ValueError(
                    f"the power of {names[k]!r} is no writable float64 array of shape ()"
                )
            self.at[k] = <double*>cnp.PyArray_DATA(array)
        self.names = names
        self.arrays = arrays
        self.n = len(names)

    def read(self):
        """Return the powers, a tuple of float."""
        if self.n == 2:
            return (self.at[0][0], self.at[1][0])
        return tuple([self.at[k][0] for k in range(self.n)])

    def advance(self, dict values not None):
        """Multiply each power by the number of its name.

        Parameters
        ----------
        values : dict of str to float
        """
        cdef double[MOST_POWERS] factors
        cdef Py_ssize_t k
        for k in range(self.n):
            factors[k] = values[self.names[k]]
        for k in range(self.n):
            self.at[k][0] *= factors[k]
