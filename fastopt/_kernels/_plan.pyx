# cython: language_level=3
# distutils: language = c++
"""The checked pointers of a list of variables under one rule, kept from step to step.

The constructor checks what belongs to the variables: it is called once. ``bind`` checks what
belongs to the gradients, and trusts none of it: it is called at every step. ``run`` trusts both.
A plan has one user at a time, and says so to a second one.
"""

from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport strcmp

import weakref

import numpy as np

cimport numpy as cnp

from ._deferred cimport Constants, Ledger, make_constants
from ._dispatch cimport functions
from ._drivers cimport (
    DensePart,
    DenseUpdate,
    Ledgers,
    Spans,
    SparseSweep,
    SparseUpdate,
    StepScalars,
    Table,
    parallel_fn,
)
from ._half cimport half_number, half_type
from ._pool cimport num_threads, parallel_for
from ._typedefs cimport FASTOPT_MAX_SCALARS, rule_entry

from .rules import RULES

cnp.import_array()

cdef enum:
    KEEP_GIL = 1 << 12      # elements below which giving up the GIL costs more than the work
    FLOAT = cnp.NPY_FLOAT
    DOUBLE = cnp.NPY_DOUBLE

ctypedef enum State:
    FREE
    BINDING
    BOUND
    RUNNING

# What a plan knows of a variable, and of the gradient that is bound to it.
cdef struct Part:
    PyObject* key           # compared, never followed
    Table table
    Py_ssize_t n            # elements
    int ndim
    cnp.npy_intp* shape     # a copy: setting an array's shape frees the old one
    int type_num
    Py_ssize_t nbytes
    PyObject* held          # the gradient's array; a reference of ours while it is bound
    PyObject* indices       # likewise, of a sparse one
    int64_t n_look_ups
    const char* g           # the dense gradient, or the rows of a sparse one
    const char* apart       # a gradient at this address is known to overlap nothing
    bint sparse
    SparseUpdate* update    # made when the first sparse gradient comes
    bint has_ledger
    bint dense_only         # a sparse gradient does not fit
    uint32_t rounding_key


cdef class _Life:
    """Keeps a plan's arrays until one of its keys dies."""

    cdef bint dead
    cdef bint busy
    cdef list arrays

    def __call__(self, reference):
        self.dead = True
        if not self.busy:
            self.arrays = None


cdef int array_type(object array, str what) except -1:
    cdef int type_num
    if not isinstance(array, np.ndarray) or not cnp.PyArray_ISCARRAY(<cnp.ndarray>array):
        raise ValueError(
            f"{what} must be a writable, aligned, C-contiguous array of native byte order"
        )
    type_num = cnp.PyArray_TYPE(<cnp.ndarray>array)
    if type_num != FLOAT and type_num != DOUBLE:
        raise TypeError(f"{what} must be float32 or float64, not {array.dtype}")
    return 0 if type_num == FLOAT else 1


cdef list each_of(list given, Py_ssize_t n, str name, object default=None):
    """Return what was given for each of n keys, or the default for each."""
    if given is None:
        return [default] * n
    if len(given) != n:
        raise ValueError(f"{n} keys, {len(given)} {name}")
    return given


cdef class Plan:
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

    cdef Part* parts
    cdef cnp.npy_intp* dims
    cdef Py_ssize_t n_parts
    cdef const rule_entry* rule
    cdef object slices_type
    cdef _Life life
    cdef list references
    cdef list constants         # of the parts with a ledger
    cdef Ledgers ledgers
    cdef list shapes
    cdef Spans spans            # memory of weights and slots
    cdef DenseUpdate dense
    cdef SparseSweep tables     # with sparse gradients, in the order of the parts
    cdef Py_ssize_t n_dense     # elements with a dense gradient
    cdef Py_ssize_t n_sparse    # variables with a sparse one
    cdef float* scalars32
    cdef double* scalars64
    cdef Py_ssize_t scalar_stride
    cdef double* rates          # what part of each variable's weights decays in this step
    cdef bint decays            # whether one of them is not 0
    cdef bint waits             # the rule changes rows without a gradient
    cdef State state
    cdef unsigned long owner

    def __cinit__(
        self, str rule, list keys, list arrays, list slots, type slices_type, str untouched="skip",
        list ledgers=None, list halves=None, bint decay_listed=False, list dense_only=None,
        list rounding_keys=None,
    ):
        cdef Py_ssize_t k, n = len(keys), n_segments = 0, n_dims = 0
        cdef int s
        cdef Part* part
        cdef cnp.ndarray array
        each_of(arrays, n, "arrays")
        each_of(slots, n, "slots")
        ledgers = each_of(ledgers, n, "ledgers")
        halves = each_of(halves, n, "halves")
        dense_only = each_of(dense_only, n, "dense_only", False)
        rounding_keys = each_of(rounding_keys, n, "rounding_keys", 0)
        if untouched not in ("skip", "update"):
            raise ValueError(f'untouched must be "skip" or "update", not {untouched!r}')
        self.rule = NULL
        name = rule.encode()
        for s in range(functions().n_rules):
            if strcmp(functions().rules[s].name, name) == 0:
                self.rule = &functions().rules[s]
        if self.rule == NULL:
            raise ValueError(f"no rule {rule!r}; there are {', '.join(RULES)}")
        if untouched == "update" and (self.rule.sequential or self.rule.reduction):
            raise ValueError(f"rule {rule!r} leaves untouched rows as they are")
        self.slices_type = slices_type
        self.life = _Life()
        self.life.arrays = []
        self.shapes = []
        self.state = FREE
        self.parts = <Part*>calloc(n + 1, sizeof(Part))
        self.scalars32 = <float*>calloc((n + 1) * FASTOPT_MAX_SCALARS, sizeof(float))
        self.scalars64 = <double*>calloc((n + 1) * FASTOPT_MAX_SCALARS, sizeof(double))
        self.rates = <double*>calloc(n + 1, sizeof(double))
        self.waits = RULES[rule].untouched is not None
        self.constants = [None] * n
        self.dims = <cnp.npy_intp*>calloc(
            sum(map(np.ndim, arrays)) + 1, sizeof(cnp.npy_intp)
        )
        if not (
            self.parts and self.dims and self.scalars32 and self.scalars64 and self.rates
        ):
            raise MemoryError(f"no memory for a plan of {n} variables")
        self.ledgers.reserve(n)
        self.spans.reserve(n * (2 + self.rule.n_slots))
        self.tables.reserve(n)
        for k in range(n):
            part = &self.parts[k]
            part.key = <PyObject*>keys[k]
            alone = (
                halves[k] is None
                and isinstance(arrays[k], np.ndarray)
                and half_number(arrays[k].dtype) >= 0
            )
            if alone:
                part.table.half_type = half_type(arrays[k], None, f"array {k}")
                array = arrays[k]
                part.table.half = <char*>cnp.PyArray_DATA(array)
            else:
                part.table.type = array_type(arrays[k], f"array {k}")
                array = arrays[k]
                part.table.w = <char*>cnp.PyArray_DATA(array)
            part.dense_only = dense_only[k]
            part.rounding_key = rounding_keys[k]
            if len(slots[k]) != self.rule.n_slots:
                raise ValueError(
                    f"rule {rule!r} has slots {RULES[rule].slots}, "
                    f"{len(slots[k])} came for array {k}"
                )
            part.table.rule = self.rule
            part.table.n_slots = self.rule.n_slots
            part.table.every_row = untouched == "update" and ledgers[k] is None
            part.table.decay_listed = decay_listed
            part.n = cnp.PyArray_SIZE(array)
            part.ndim = cnp.PyArray_NDIM(array)
            part.shape = self.dims + n_dims
            n_dims += part.ndim
            for s in range(part.ndim):
                part.shape[s] = cnp.PyArray_DIM(array, s)
            dtype = np.dtype(np.float32) if alone else array.dtype
            part.type_num = dtype.num
            part.nbytes = part.n * dtype.itemsize
            part.table.n_rows = part.shape[0] if part.ndim else 1
            part.table.width = 1
            for s in range(1, part.ndim):
                part.table.width *= part.shape[s]
            self.life.arrays.append(array)
            self.shapes.append(arrays[k].shape)
            self.spans.add(cnp.PyArray_DATA(array), cnp.PyArray_NBYTES(array))
            if halves[k] is not None:
                part.table.half_type = half_type(halves[k], array, f"half {k}")
                part.table.half = <char*>cnp.PyArray_DATA(<cnp.ndarray>halves[k])
                self.life.arrays.append(halves[k])
                self.spans.add(part.table.half, part.nbytes // 2)
            for s, slot in enumerate(slots[k]):
                array_type(slot, f"slot {RULES[rule].slots[s]!r} of array {k}")
                shape = arrays[k].shape
                if self.rule.row_slots >> s & 1:
                    shape = shape[:1]
                if slot.dtype != dtype or slot.shape != shape:
                    raise ValueError(
                        f"slot {RULES[rule].slots[s]!r} of array {k} must have dtype "
                        f"{dtype} and shape {shape}, "
                        f"not {slot.dtype} {slot.shape}"
                    )
                part.table.slots[s] = <char*>cnp.PyArray_DATA(<cnp.ndarray>slot)
                self.life.arrays.append(slot)
                self.spans.add(part.table.slots[s], slot.nbytes)
            n_segments += DenseUpdate.segments_of(part.n)
            if ledgers[k] is not None:
                self.add_ledger(k, rule, ledgers[k], arrays[k], halves[k], slots[k])
        if not self.dense.reserve(self.rule, n, n_segments):
            raise MemoryError(f"no memory for a plan of {n} variables")
        for k in range(n):
            part = &self.parts[k]
            self.dense.set_part(
                k, DensePart(&part.table, part.n, &part.g, <const int*>&part.sparse)
            )
        if not self.spans.close():
            raise ValueError("two of the arrays overlap")
        # Last: from here on the keys' deaths are noticed.
        self.references = [weakref.ref(key, self.life) for key in keys]
        self.n_parts = n

    def __dealloc__(self):
        cdef Py_ssize_t k
        if self.parts:
            for k in range(self.n_parts):
                self.drop(&self.parts[k])
                del self.parts[k].update
        free(self.parts)
        free(self.dims)
        free(self.scalars32)
        free(self.scalars64)
        free(self.rates)

    cdef int add_ledger(
        self, Py_ssize_t k, str rule, Ledger ledger, object array, object half, tuple slots
    ) except -1:
        cdef Part* part = &self.parts[k]
        if (
            ledger.rule != rule
            or ledger.w is not array
            or ledger.half is not half
            or not all(a is b for a, b in zip(ledger.slots, slots))
        ):
            raise ValueError(f"ledger {k} is of another rule or of other arrays")
        part.has_ledger = True
        self.ledgers.add(k, &part.table, ledger.deferred, <const int*>&part.sparse)
        self.life.arrays.append(ledger)
        return 0

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
        cdef int64_t status
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
        with nogil:
            status = self.tables.load(<parallel_fn>parallel_for, threads)
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

    cdef int read_scalars(self, Py_ssize_t k, object scalars) except -1:
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
                self.read_scalars(k, scalars[k])
            self.scalar_stride = FASTOPT_MAX_SCALARS
        else:
            self.read_scalars(0, scalars)
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
            enough = self.sweep()
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
            self.ledgers.begin(rates, <parallel_fn>parallel_for, threads)
            and self.sweep_parts(threads)
        )
        self.ledgers.end(
            done, self.scalars64, self.scalar_stride, rates, <parallel_fn>parallel_for, threads
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
            if not self.tables.prepare(<parallel_fn>parallel_for, threads):
                return False
        self.dense.run(
            self.scalars(), functions(), self.n_dense, <parallel_fn>parallel_for, threads
        )
        if self.n_sparse:
            self.tables.run(functions(), <parallel_fn>parallel_for)
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
                n = self.parts[k].update.rows_touched(<parallel_fn>parallel_for, num_threads())
                if n < 0:
                    raise MemoryError("no memory to count rows")
                total += n
        return total
