# cython: language_level=3
# distutils: language = c++
"""The checked pointers of a list of variables under one rule, kept from step to step.

The constructor checks what belongs to the variables, once; see ``_parts``. ``bind`` checks what
belongs to the gradients, and trusts none of it: it is called at every step. ``run`` trusts both.
A plan has one user at a time, and says so to a second one.
"""

from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

cimport numpy as cnp

from ._deferred cimport Constants, make_constants
from ._dispatch cimport functions
from ._drivers cimport SparseSweep, SparseUpdate, StepScalars
from ._parts cimport Part, Parts
from ._pool cimport num_threads, parallel_for
from ._turns cimport leave_python, return_to_python
from ._typedefs cimport FASTOPT_MAX_SCALARS

from .rules import RULES

cnp.import_array()

cdef enum:
    KEEP_GIL = 1 << 12      # elements below which giving up the GIL costs more than the work
    KEEP_GIL_LOOK_UPS = 1 << 13     # the same of look-ups that are copied and checked

ctypedef enum State:
    FREE
    BINDING
    BOUND
    RUNNING


cdef class Plan(Parts):
    """Checked pointers of one list of variables under one rule.

    Parameters
    ----------
    rule : str
        A name of the page of rules.
    keys : list of object
        One for each variable: compared by identity and held weakly. When one of them dies, the
        plan binds nothing any more.
    arrays : list of ndarray
        The weights, float32 or float64, writable, C-contiguous. In float16 or bfloat16 they are
        rounded up or down at random after an update in float32; gradient and slots are float32.
    slots : list of tuple of ndarray
        The slots of each variable, in the rule's order, of its shape and dtype.
    slices_type : type
        The type of sparse gradients, with attributes ``values``, ``indices``, ``dense_shape``.
    untouched : {"skip", "update"}
        With "update", rows that a sparse gradient doesn't list are updated with a gradient of 0.
    ledgers : list of (Ledger or None), optional
        One for each variable, of the same arrays. Where there is one, what such rows miss is made
        up for later, whatever `untouched` says. Rows that decay need one, unless all are updated.
    dense_only : list of bool, optional
        Where True, a sparse gradient does not fit.
    rounding_keys : list of int, optional
        Below 2**32: what the random numbers of a variable depend on, beside the key of `run`.
    halves : list of (ndarray or None), optional
        The weights in float16 or bfloat16, where ``arrays`` has a float32 master of them. The
        update is made on the master and rounded. Where a master doesn't round to the weight, which
        somebody has changed then, it takes the weight's value first.
    decay_listed : bool
        Where a gradient is sparse, only rows that it lists decay.

    Raises
    ------
    ValueError
        If the rule is not known, layouts or shapes don't fit, or two arrays overlap.
    TypeError
        If a dtype is not supported, or a key can't be held weakly.
    """

    cdef object slices_type
    cdef list constants         # of the parts with a ledger
    cdef SparseSweep tables     # with sparse gradients, in the order of the parts
    cdef Py_ssize_t n_dense     # elements with a dense gradient
    cdef Py_ssize_t n_sparse    # variables with a sparse one
    cdef float* scalars32
    cdef double* scalars64
    cdef Py_ssize_t scalar_stride
    cdef double* rates          # what part of each variable's weights decays in this step
    cdef bint decays            # whether one of them is not 0
    cdef bint waits             # the rule changes rows without a gradient
    cdef bint any_float32       # one of the variables at least is updated in float32
    cdef State state
    cdef unsigned long owner

    def __cinit__(
        self, str rule, list keys, list arrays, list slots, type slices_type, *options, **named
    ):
        cdef Py_ssize_t n = self.n_parts
        self.slices_type = slices_type
        self.state = FREE
        self.scalars32 = <float*>calloc((n + 1) * FASTOPT_MAX_SCALARS, sizeof(float))
        self.scalars64 = <double*>calloc((n + 1) * FASTOPT_MAX_SCALARS, sizeof(double))
        self.rates = <double*>calloc(n + 1, sizeof(double))
        if not self.scalars32 or not self.scalars64 or not self.rates:
            raise MemoryError(f"no memory for a plan of {n} variables")
        self.waits = RULES[rule].untouched is not None
        self.any_float32 = any([self.parts[k].table.type == 0 for k in range(n)])
        self.constants = [None] * n
        self.tables.reserve(n)

    def __dealloc__(self):
        cdef Py_ssize_t k
        for k in range(self.n_parts):
            self.drop(&self.parts[k])
        free(self.scalars32)
        free(self.scalars64)
        free(self.rates)

    cdef inline void drop(self, Part* part) noexcept:
        cdef PyObject* held = part.held
        cdef PyObject* indices = part.indices
        part.held = NULL
        part.indices = NULL
        if held != NULL:
            Py_DECREF(<object>held)
        if indices != NULL:
            Py_DECREF(<object>indices)

    cdef inline void hold(self, Part* part, PyObject* array) noexcept:
        part.held = array
        Py_INCREF(<object>array)

    cdef bint bind_dense(self, Part* part, PyObject* gradient) noexcept:
        cdef cnp.ndarray array = <cnp.ndarray>gradient
        cdef const cnp.npy_intp* shape
        cdef const char* data
        cdef int d
        if (
            cnp.PyArray_TYPE(array) != part.type_num
            or cnp.PyArray_NDIM(array) != part.ndim
            or not cnp.PyArray_ISCARRAY_RO(array)
        ):
            return False
        shape = cnp.PyArray_DIMS(array)
        for d in range(part.ndim):
            if shape[d] != part.shape[d]:
                return False
        data = cnp.PyArray_BYTES(array)
        if data != part.apart:
            if self.spans.meet(data, part.nbytes):
                return False
            part.apart = data
        part.g = data
        if part.sparse:
            part.sparse = False
            self.dense.mixture_changed()
        self.hold(part, gradient)
        self.n_dense += part.n
        return True

    cdef bint bind_sparse(self, Py_ssize_t k, object slices) except -1:
        cdef Part* part = &self.parts[k]
        cdef object values_object = slices.values
        cdef object indices_object = slices.indices
        cdef object dense_shape = slices.dense_shape
        cdef cnp.ndarray values
        cdef cnp.ndarray indices
        cdef const cnp.npy_intp* shape
        cdef int d
        cdef int64_t n
        if (
            part.ndim == 0
            or part.dense_only
            or not self.dense.is_walk()
            or not cnp.PyArray_CheckExact(values_object)
            or not cnp.PyArray_CheckExact(indices_object)
        ):
            return False
        values = values_object
        indices = indices_object
        if (
            cnp.PyArray_TYPE(values) != part.type_num
            or cnp.PyArray_NDIM(values) != part.ndim
            or not cnp.PyArray_ISCARRAY_RO(values)
            or cnp.PyArray_NDIM(indices) != 1
            or not cnp.PyArray_ISCARRAY_RO(indices)
            or not cnp.PyArray_ISSIGNED(indices)
            or cnp.PyArray_ITEMSIZE(indices) not in (4, 8)
            or not cnp.PyArray_ISINTEGER(indices)
        ):
            return False
        shape = cnp.PyArray_DIMS(values)
        n = cnp.PyArray_DIM(indices, 0)
        if shape[0] != n:
            return False
        for d in range(1, part.ndim):
            if shape[d] != part.shape[d]:
                return False
        if dense_shape is not None and tuple(dense_shape) != self.shapes[k]:
            return False
        if self.spans.meet(cnp.PyArray_BYTES(values), cnp.PyArray_NBYTES(values)):
            return False
        if part.update == NULL:
            part.update = new SparseUpdate()
        part.g = cnp.PyArray_BYTES(values)
        if not part.sparse:
            part.sparse = True
            self.dense.mixture_changed()
        self.hold(part, <PyObject*>values)
        part.indices = <PyObject*>indices
        Py_INCREF(indices)
        part.n_look_ups = n
        self.n_sparse += 1
        return True

    cdef bint load_look_ups(self) except -1:
        """Copy and check the look-ups of all tables. No Python runs meanwhile."""
        cdef Py_ssize_t k
        cdef Part* part
        cdef cnp.ndarray indices
        cdef int threads = num_threads()
        cdef int64_t status, total = 0
        self.tables.clear()
        for k in range(self.n_parts):
            part = &self.parts[k]
            if not part.sparse:
                continue
            indices = <cnp.ndarray>part.indices
            if cnp.PyArray_SIZE(indices) != part.n_look_ups:
                return False  # what ran for a later gradient has changed it
            self.tables.add(
                part.update, &part.table, part.indices, cnp.PyArray_DATA(indices),
                cnp.PyArray_ITEMSIZE(indices) == 8, part.n_look_ups,
            )
            total += part.n_look_ups
        if total <= KEEP_GIL_LOOK_UPS:
            status = self.tables.load(parallel_for, 1)
        else:
            with nogil:
                leave_python()
                status = self.tables.load(parallel_for, threads)
                return_to_python()
        if status == -2:
            raise MemoryError("no memory to group the indices of sparse gradients")
        return status == -1

    cdef bint bind_all(self, list pairs) except -1:
        cdef Py_ssize_t k
        cdef PyObject* pair_p
        cdef PyObject* gradient
        cdef Part* part
        cdef object slices
        for k in range(self.n_parts):
            # A property of a gradient may run Python, which may shorten the list.
            if PyList_GET_SIZE(pairs) != self.n_parts:
                return False
            pair_p = <PyObject*>PyList_GET_ITEM(pairs, k)
            if not PyTuple_CheckExact(<object>pair_p) or PyTuple_GET_SIZE(<object>pair_p) != 2:
                return False
            part = &self.parts[k]
            if <PyObject*>PyTuple_GET_ITEM(<object>pair_p, 1) != part.key:
                return False
            gradient = <PyObject*>PyTuple_GET_ITEM(<object>pair_p, 0)
            if cnp.PyArray_CheckExact(<object>gradient):
                if not self.bind_dense(part, gradient):
                    return False
            elif type(<object>gradient) is self.slices_type:
                slices = <object>gradient  # a reference of ours, whatever becomes of the list
                if not self.bind_sparse(k, slices):
                    return False
            else:
                return False
        return self.n_sparse == 0 or self.load_look_ups()

    def bind(self, pairs):
        """Take the gradients of a step.

        Parameters
        ----------
        pairs : list of (gradient, key)
            In the order of the keys. A gradient is an ndarray of the variable's shape and dtype,
            or of the type of slices; both C-contiguous, without overlap with a variable or slot.

        Returns
        -------
        bool
            False, and nothing is bound, when anything does not fit exactly, when a key has died,
            or when another thread is using the plan.
        """
        cdef bint fits = False
        if self.state != FREE:
            if self.state != BOUND or self.owner != PyThread_get_thread_ident():
                return False
            self.unbind()
        if self.life.dead or not PyList_CheckExact(pairs) or PyList_GET_SIZE(pairs) != self.n_parts:
            return False
        self.state = BINDING
        self.owner = PyThread_get_thread_ident()
        self.life.busy = True
        self.n_dense = 0
        self.n_sparse = 0
        try:
            fits = self.bind_all(pairs)
        finally:
            if fits:
                self.state = BOUND
            else:
                self.n_dense = 0
                self.n_sparse = 0
                self.unbind()
        return fits

    cdef void unbind(self) noexcept:
        cdef Py_ssize_t k
        for k in range(self.n_parts):
            self.drop(&self.parts[k])
        self.life.busy = False
        if self.life.dead:
            self.life.arrays = None
        self.state = FREE

    def release(self):
        """Drop the bound gradients.

        Raises
        ------
        RuntimeError
            If another thread is using the plan.
        """
        if self.state == FREE:
            return
        if self.state != BOUND or self.owner != PyThread_get_thread_ident():
            raise RuntimeError("the plan is in use by another thread")
        self.unbind()

    cdef int read_scalars(self, Py_ssize_t k, object scalars, bint in_float32) except -1:
        cdef Py_ssize_t i, at = k * FASTOPT_MAX_SCALARS
        cdef double x
        if len(scalars) != self.rule.n_scalars:
            name = self.rule.name.decode()
            raise ValueError(
                f"rule {name!r} wants scalars {RULES[name].scalars}, {len(scalars)} came"
            )
        for i in range(self.rule.n_scalars):
            x = scalars[i]
            self.scalars64[at + i] = x
            self.scalars32[at + i] = <float>x
            if not isfinite(self.scalars32[at + i] if in_float32 else x):
                name = self.rule.name.decode()
                raise OverflowError(
                    f"scalar {RULES[name].scalars[i]!r} of rule {name!r} is {x}, which is not"
                    f" finite in {'float32' if in_float32 else 'float64'}"
                )
        return 0

    cdef int read_rates(self, object rates) except -1:
        cdef Py_ssize_t k
        cdef Part* part
        cdef double rate
        self.decays = False
        if type(rates) is list and len(rates) != self.n_parts:
            raise ValueError(f"{len(rates)} rates of decay for {self.n_parts} variables")
        for k in range(self.n_parts):
            rate = rates[k] if type(rates) is list else rates
            self.rates[k] = rate
            if rate == 0:
                continue
            self.decays = True
            part = &self.parts[k]
            if not isfinite(<float>rate if part.table.type == 0 else rate):
                raise OverflowError(f"rate {rate} of decay of array {k} is not finite in its type")
            if (
                part.sparse and not part.has_ledger
                and not part.table.every_row and not part.table.decay_listed
            ):
                raise ValueError(f"rows of array {k} decay, which needs a ledger")
        return 0

    def run(self, scalars, decay=0.0, uint32_t key=0):
        """Apply the rule to all bound gradients, in one sweep.

        Parameters
        ----------
        scalars : tuple of float, or list of such
            The rule's scalars of this step; a list gives them variable by variable.
        decay : float, or list of float
            The part of the weights that goes before the rule is applied,
            ``w = w - decay * w``; a list gives it variable by variable.
        key : int
            Below 2**32: where the random numbers of this step begin, for rounding to 16 bits.

        Raises
        ------
        RuntimeError
            If nothing is bound, or another thread has bound.
        ValueError
            If the number of scalars is not the rule's, or rows decay that have no ledger.
        OverflowError
            If a scalar, or a rate, is not finite in the type in which a variable is updated;
            nothing was changed then.
        MemoryError
            If there is no memory to sort the look-ups; nothing was changed then.
        """
        cdef Py_ssize_t k
        cdef bint enough
        if self.state != BOUND or self.owner != PyThread_get_thread_ident():
            raise RuntimeError("no gradients are bound by this thread")
        if type(scalars) is list:
            if len(scalars) != self.n_parts:
                raise ValueError(f"{len(scalars)} tuples of scalars for {self.n_parts} variables")
            for k in range(self.n_parts):
                self.read_scalars(k, scalars[k], self.parts[k].table.type == 0)
            self.scalar_stride = FASTOPT_MAX_SCALARS
        else:
            self.read_scalars(0, scalars, self.any_float32)
            self.scalar_stride = 0
        self.read_rates(decay)
        for k in range(self.n_parts):
            self.parts[k].table.key = self.parts[k].rounding_key ^ key
        if self.ledgers.choose(self.waits, self.rates_or_null()):
            self.read_constants()
        elif (
            self.n_sparse == 0 and self.n_dense < KEEP_GIL
            and self.dense.is_walk()
        ):
            self.dense.walk(self.scalars(), functions())
            return
        self.state = RUNNING
        with nogil:
            leave_python()
            enough = self.sweep()
            return_to_python()
        self.state = BOUND
        if not enough:
            raise MemoryError("no memory to sort the indices of sparse gradients")

    cdef int read_constants(self) except -1:
        """Find out whether the numbers by which slots shrink are still the same."""
        cdef size_t i
        cdef Py_ssize_t k
        cdef const double* scalars
        cdef Constants constants
        for i in range(self.ledgers.size()):
            if not self.ledgers.updates(i):
                continue
            k = self.ledgers.variable(i)
            scalars = self.scalars64 + k * self.scalar_stride
            constants = self.constants[k]
            if constants is None or not constants.decay.get().fits(scalars):
                constants = make_constants(
                    self.rule.name.decode(), self.parts[k].table.type, scalars
                )
                self.constants[k] = constants
                self.ledgers.set_decay(i, &constants.decay)
        return 0

    cdef StepScalars scalars(self) noexcept nogil:
        return StepScalars(
            self.scalars32, self.scalars64, self.scalar_stride, self.rates_or_null()
        )

    cdef const double* rates_or_null(self) noexcept nogil:
        return self.rates if self.decays else NULL

    cdef const void* scalars_of(self, Py_ssize_t k) noexcept nogil:
        if self.parts[k].table.type == 0:
            return self.scalars32 + k * self.scalar_stride
        return self.scalars64 + k * self.scalar_stride

    cdef bint sweep(self) noexcept nogil:
        cdef int threads = num_threads()
        cdef const double* rates = self.rates_or_null()
        cdef bint done
        if self.ledgers.size() == 0:
            return self.sweep_parts(threads)
        done = (
            self.ledgers.begin(rates, parallel_for, threads)
            and self.sweep_parts(threads)
        )
        self.ledgers.end(
            done, self.scalars64, self.scalar_stride, rates, parallel_for, threads
        )
        return done

    cdef bint sweep_parts(self, int threads) noexcept nogil:
        cdef Py_ssize_t k
        cdef size_t at = 0
        if self.n_sparse:
            for k in range(self.n_parts):
                if self.parts[k].sparse:
                    self.tables.set(
                        at, self.parts[k].g, self.scalars_of(k),
                        self.rates[k] if self.decays else 0.0,
                    )
                    at += 1
            if not self.tables.prepare(parallel_for, threads):
                return False
        self.dense.run(
            self.scalars(), functions(), self.n_dense, parallel_for, threads
        )
        if self.n_sparse:
            self.tables.run(functions(), parallel_for)
        return True

    @property
    def dense_parameters(self):
        """Number of elements of the variables whose gradients bound last were dense."""
        return self.n_dense

    @property
    def rows_touched(self):
        """Number of different rows of the sparse gradients bound last."""
        cdef Py_ssize_t k
        cdef int64_t n, total = 0
        if self.state == RUNNING or self.state == BINDING:
            raise RuntimeError("the plan is in use by another thread")
        if self.n_sparse == 0:
            return 0
        for k in range(self.n_parts):
            if self.parts[k].sparse:
                n = self.parts[k].update.rows_touched(parallel_for, num_threads())
                if n < 0:
                    raise MemoryError("no memory to count rows")
                total += n
        return total
