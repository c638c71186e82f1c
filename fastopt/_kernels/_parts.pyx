# cython: language_level=3
# distutils: language = c++
"""The variables of a plan: their arrays, checked once, and where their memory lies.

Nothing here knows of a step; see ``_plan``.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport strcmp

import weakref

import numpy as np

cimport numpy as cnp

from ._deferred cimport Ledger
from ._dispatch cimport functions
from ._drivers cimport DensePart, DenseUpdate
from ._half cimport half_number, half_type

from .rules import RULES

cnp.import_array()

cdef enum:
    FLOAT = cnp.NPY_FLOAT
    DOUBLE = cnp.NPY_DOUBLE


cdef class Life:
    """Keeps a plan's arrays until one of its keys dies."""

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


cdef class Parts:
    """Checked pointers of one list of variables under one rule; see ``Plan`` for parameters."""

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
        self.find_rule(rule, untouched)
        self.life = Life()
        self.life.arrays = []
        self.shapes = []
        self.parts = <Part*>calloc(n + 1, sizeof(Part))
        self.dims = <cnp.npy_intp*>calloc(
            sum(map(np.ndim, arrays)) + 1, sizeof(cnp.npy_intp)
        )
        if not self.parts or not self.dims:
            raise MemoryError(f"no memory for a plan of {n} variables")
        self.ledgers.reserve(n)
        self.spans.reserve(n * (2 + self.rule.n_slots))
        for k in range(n):
            part = &self.parts[k]
            part.key = <PyObject*>keys[k]
            part.dense_only = dense_only[k]
            part.rounding_key = rounding_keys[k]
            part.table.rule = self.rule
            part.table.n_slots = self.rule.n_slots
            part.table.every_row = untouched == "update" and ledgers[k] is None
            part.table.decay_listed = decay_listed
            dtype = self.set_weight(k, arrays[k], halves[k])
            array = arrays[k]
            part.n = cnp.PyArray_SIZE(array)
            part.ndim = cnp.PyArray_NDIM(array)
            part.shape = self.dims + n_dims
            n_dims += part.ndim
            for s in range(part.ndim):
                part.shape[s] = cnp.PyArray_DIM(array, s)
            part.type_num = dtype.num
            part.nbytes = part.n * dtype.itemsize
            part.table.n_rows = part.shape[0] if part.ndim else 1
            part.table.width = 1
            for s in range(1, part.ndim):
                part.table.width *= part.shape[s]
            self.shapes.append(arrays[k].shape)
            if halves[k] is not None:
                self.set_half(k, halves[k], array)
            self.set_slots(k, slots[k], dtype, arrays[k].shape)
            n_segments += DenseUpdate.segments_of(part.n)
            if ledgers[k] is not None:
                self.add_ledger(k, ledgers[k], arrays[k], halves[k], slots[k])
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
                del self.parts[k].update
        free(self.parts)
        free(self.dims)

    cdef int find_rule(self, str rule, str untouched) except -1:
        cdef int i
        if untouched not in ("skip", "update"):
            raise ValueError(f'untouched must be "skip" or "update", not {untouched!r}')
        name = rule.encode()
        self.rule = NULL
        for i in range(functions().n_rules):
            if strcmp(functions().rules[i].name, name) == 0:
                self.rule = &functions().rules[i]
        if self.rule == NULL:
            raise ValueError(f"no rule {rule!r}; there are {', '.join(RULES)}")
        if untouched == "update" and (self.rule.sequential or self.rule.reduction):
            raise ValueError(f"rule {rule!r} leaves untouched rows as they are")
        return 0

    cdef object set_weight(self, Py_ssize_t k, object weight, object half):
        """Return the dtype of the variable's gradient and slots."""
        cdef Part* part = &self.parts[k]
        if (
            half is None
            and isinstance(weight, np.ndarray)
            and half_number(weight.dtype) >= 0
        ):
            part.table.half_type = half_type(weight, None, f"array {k}")
            part.table.half = <char*>cnp.PyArray_DATA(<cnp.ndarray>weight)
            dtype = np.dtype(np.float32)
        else:
            part.table.type = array_type(weight, f"array {k}")
            part.table.w = <char*>cnp.PyArray_DATA(<cnp.ndarray>weight)
            dtype = weight.dtype
        self.life.arrays.append(weight)
        self.spans.add(
            cnp.PyArray_DATA(<cnp.ndarray>weight), cnp.PyArray_NBYTES(<cnp.ndarray>weight)
        )
        return dtype

    cdef int set_half(self, Py_ssize_t k, object half, cnp.ndarray master) except -1:
        cdef Part* part = &self.parts[k]
        part.table.half_type = half_type(half, master, f"half {k}")
        part.table.half = <char*>cnp.PyArray_DATA(<cnp.ndarray>half)
        self.life.arrays.append(half)
        self.spans.add(part.table.half, part.nbytes // 2)
        return 0

    cdef int set_slots(self, Py_ssize_t k, object slots, object dtype, tuple shape) except -1:
        cdef Part* part = &self.parts[k]
        cdef str rule = self.rule.name.decode()
        if len(slots) != self.rule.n_slots:
            raise ValueError(
                f"rule {rule!r} has slots {RULES[rule].slots}, {len(slots)} came for array {k}"
            )
        for s, slot in enumerate(slots):
            what = f"slot {RULES[rule].slots[s]!r} of array {k}"
            array_type(slot, what)
            wanted = shape[:1] if self.rule.row_slots >> s & 1 else shape
            if slot.dtype != dtype or slot.shape != wanted:
                raise ValueError(
                    f"{what} must have dtype {dtype} and shape {wanted}, "
                    f"not {slot.dtype} {slot.shape}"
                )
            part.table.slots[s] = <char*>cnp.PyArray_DATA(<cnp.ndarray>slot)
            self.life.arrays.append(slot)
            self.spans.add(part.table.slots[s], slot.nbytes)
        return 0

    cdef int add_ledger(
        self, Py_ssize_t k, Ledger ledger, object array, object half, object slots
    ) except -1:
        cdef Part* part = &self.parts[k]
        if (
            ledger.rule != self.rule.name.decode()
            or ledger.w is not array
            or ledger.half is not half
            or not all(a is b for a, b in zip(ledger.slots, slots))
        ):
            raise ValueError(f"ledger {k} is of another rule or of other arrays")
        part.has_ledger = True
        self.ledgers.add(k, &part.table, ledger.deferred, <const int*>&part.sparse)
        self.life.arrays.append(ledger)
        return 0
