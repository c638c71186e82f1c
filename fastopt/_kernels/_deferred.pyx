# cython: language_level=3
# distutils: language = c++
"""The ledger of what the rows of a table have missed.

Steps are made by a plan that knows the ledger. Here is what there is outside of steps: making up
for rows, and reading them as they would be. See ``deferred.hpp``.
"""

from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as cbool

import numpy as np

cimport numpy as cnp

from ._dispatch cimport functions
from ._half cimport half_type
from ._pool cimport num_threads, parallel_for

from ._expansion import expansion
from .rules import RULES, Untouched

cnp.import_array()


cdef int float_type(object array, str what) except -1:
    if not isinstance(array, np.ndarray) or not cnp.PyArray_ISCARRAY(<cnp.ndarray>array):
        raise ValueError(
            f"{what} must be a writable, aligned, C-contiguous array of native byte order"
        )
    if array.dtype == np.float32:
        return 0
    if array.dtype == np.float64:
        return 1
    raise TypeError(f"{what} must be float32 or float64, not {array.dtype}")


cdef class Constants:
    """What a rule does to untouched elements, for plans."""


cdef Constants make_constants(str rule, int type, const double* scalars):
    """Take the constants out of the scalars of a step."""
    cdef Decay* decay = new Decay()
    cdef Constants constants = Constants.__new__(Constants)
    cdef const double[:, ::1] moments
    page = RULES[rule]
    untouched = page.untouched or Untouched()
    place = {name: k for k, name in enumerate(page.scalars)}
    slot = {name: k for k, name in enumerate(page.slots)}
    factors = {}
    try:
        for name, scalar in untouched.shrinking:
            value = scalars[<int>place[scalar]]
            factors[name] = 1.0 - value if scalar.startswith("one_minus_") else value
            decay.add_shrinking(slot[name], place[scalar], value, factors[name])
        if untouched.moving is not None:
            decay.moving = slot[untouched.moving]
            decay.over = slot[untouched.over]
            decay.root = ("sqrt", "identity").index(untouched.root)
            decay.lr_scalar = place[untouched.lr]
            decay.epsilon_scalar = place[untouched.epsilon]
            decay.epsilon = scalars[<int>place[untouched.epsilon]]
            ratio = factors.get(untouched.over, 1.0)
            if untouched.root == "sqrt":
                ratio **= 0.5
            found = expansion(factors[untouched.moving], ratio, type == 0)
            moments = found.coefficients
            decay.set_moments(
                found.window, found.reach, found.centre, found.n_moments, &moments[0, 0]
            )
        else:
            moments = np.zeros((1, 1))
            decay.set_moments(1, 0, 1.0, 1, &moments[0, 0])
    except BaseException:
        del decay
        raise
    constants.decay = shared(decay)
    return constants


cdef class Ledger:
    """What each row of a table has missed, under one rule.

    Parameters
    ----------
    rule : str
        A name of the page of rules. Where it says nothing about untouched rows, all that these miss
        is the decay of their weights.
    w : ndarray, shape (n_rows, ...)
        The weights, float32 or float64, writable, C-contiguous.
    slots : tuple of ndarray
        The slots in the rule's order; of the weights' shape and dtype, if rows miss anything there.
    half : ndarray, optional
        The weights in float16 or bfloat16, of which ``w`` is the float32 master.
    at_once : bool
        Leave nothing for later when a step ends.

    Raises
    ------
    ValueError
        If there is no such rule, or the arrays do not fit.
    TypeError
        If a dtype is not supported.
    """

    def __cinit__(
        self, str rule, object w, tuple slots, object half=None, cbool at_once=False
    ):
        cdef char* pointers[8]
        cdef char* half_pointer = NULL
        cdef int k, n_slots = 0, number = 0, type = float_type(w, "the array")
        cdef int64_t width = 1, n
        page = RULES.get(rule)
        if page is None:
            raise ValueError(f"no rule {rule!r}; there are {', '.join(RULES)}")
        if w.ndim == 0:
            raise ValueError("the array must have rows, not shape ()")
        if len(slots) != len(page.slots):
            raise ValueError(f"rule {rule!r} has slots {page.slots}, {len(slots)} came")
        if page.untouched is not None:
            n_slots = len(slots)
        for k, slot in enumerate(slots[:n_slots]):
            float_type(slot, f"slot {page.slots[k]!r}")
            if slot.dtype != w.dtype or slot.shape != w.shape:
                raise ValueError(
                    f"slot {page.slots[k]!r} must have dtype {w.dtype} and shape {w.shape}, "
                    f"not {slot.dtype} {slot.shape}"
                )
            pointers[k] = <char*>cnp.PyArray_DATA(<cnp.ndarray>slot)
        for n in w.shape[1:]:
            width *= n
        if half is not None:
            number = half_type(half, w, "half")
            half_pointer = <char*>cnp.PyArray_DATA(<cnp.ndarray>half)
        self.rule = rule
        self.w = w
        self.half = half
        self.slots = slots
        self.deferred = new Deferred(
            <char*>cnp.PyArray_DATA(<cnp.ndarray>w), half_pointer, number, pointers, n_slots,
            w.shape[0], width, type, at_once, functions(),
        )

    def __dealloc__(self):
        del self.deferred

    @property
    def pending(self):
        """Whether there may be rows that have missed something."""
        return self.deferred.pending()

    @property
    def clock(self):
        """Number of steps since all rows were up to date at once."""
        return self.deferred.clock()

    @property
    def rows_made_up(self):
        """Number of rows made up for outside of steps, since the ledger exists."""
        return self.deferred.made_up()

    def last(self):
        """Return the step, by the clock, at which each row was last up to date."""
        cdef cnp.ndarray out = np.zeros(self.w.shape[0], np.int32)
        cdef int32_t* to = <int32_t*>cnp.PyArray_DATA(out)
        cdef Py_ssize_t k, n = out.shape[0]
        with nogil:
            self.deferred.lock_shared()
            if self.deferred.last() != NULL:
                for k in range(n):
                    to[k] = self.deferred.last()[k]
            self.deferred.unlock_shared()
        return out

    def settle(self):
        """Bring all rows up to date."""
        cdef int threads
        if not self.deferred.pending():
            return
        threads = num_threads()
        with nogil:
            self.deferred.lock()
            self.deferred.settle_all(parallel_for, threads)
            self.deferred.unlock()

    def settle_rows(self, cnp.ndarray ids not None):
        """Bring these rows up to date.

        Parameters
        ----------
        ids : ndarray, shape (n,)
            int32 or int64, C-contiguous. What is no row is passed over.
        """
        cdef int threads
        cdef const void* data = check_ids(ids)
        cdef cbool wide = cnp.PyArray_ITEMSIZE(ids) == 8
        cdef int64_t n = cnp.PyArray_SIZE(ids)
        if not self.deferred.pending():
            return
        threads = num_threads()
        with nogil:
            self.deferred.lock()
            self.deferred.settle_rows(data, wide, n, parallel_for, threads)
            self.deferred.unlock()

    def gather(self, cnp.ndarray ids not None, cnp.ndarray out not None):
        """Copy rows as they are when they are brought up to date.

        Where many of them wait and nobody else is looking, they are brought up to date in place.

        Parameters
        ----------
        ids : ndarray, shape (n,)
            int32 or int64, C-contiguous.
        out : ndarray, shape (n, ...)
            Takes the rows; of the dtype of the weights, C-contiguous.

        Raises
        ------
        IndexError
            If an id is not a row; the others have been copied.
        """
        cdef int threads = num_threads()
        cdef const void* data = check_ids(ids)
        cdef void* to = cnp.PyArray_DATA(out)
        cdef cbool many, good = True, wide = cnp.PyArray_ITEMSIZE(ids) == 8
        cdef int64_t n = cnp.PyArray_SIZE(ids)
        float_type(out, "out")
        if out.dtype != self.w.dtype or (<object>out).shape != (n, *self.w.shape[1:]):
            raise ValueError(
                f"out must have dtype {self.w.dtype} and shape {(n, *self.w.shape[1:])}, "
                f"not {out.dtype} {(<object>out).shape}"
            )
        with nogil:
            self.deferred.lock_shared()
            many = self.deferred.many_wait(data, wide, n)
            if not many:
                good = self.deferred.gather(data, wide, n, to, parallel_for, threads)
            self.deferred.unlock_shared()
            if many and self.deferred.try_lock():
                good = self.deferred.settle_and_gather(
                    data, wide, n, to, parallel_for, threads
                )
                self.deferred.unlock()
            elif many:
                self.deferred.lock_shared()
                good = self.deferred.gather(data, wide, n, to, parallel_for, threads)
                self.deferred.unlock_shared()
        if not good:
            raise IndexError(f"an index is out of range for {self.w.shape[0]} rows")


cdef const void* check_ids(cnp.ndarray ids) except? NULL:
    if (
        cnp.PyArray_NDIM(ids) != 1
        or not cnp.PyArray_ISCARRAY_RO(ids)
        or not (ids.dtype == np.int32 or ids.dtype == np.int64)
    ):
        raise ValueError(
            "ids must be a C-contiguous array of int32 or int64 of one dimension, not "
            f"{ids.dtype} {(<object>ids).shape}"
        )
    return cnp.PyArray_DATA(ids)
