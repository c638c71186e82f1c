"""The C types of the kernels, each with its reason.

Sizes, offsets and row numbers are ``Py_ssize_t`` or 64 bits wide: row number times row width
passes 2**31 in tables people train.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "walk.h" nogil:
    enum:
        FASTOPT_MISSED
        FASTOPT_WALK_ROWS
        FASTOPT_WALK_RUN

    ctypedef struct look_up:
        uint32_t row
        uint32_t position

    ctypedef struct row_walk:
        char* w
        char** slots
        const char* values
        const void* h
        Py_ssize_t width
        Py_ssize_t ahead
        Py_ssize_t batch
        void* sum
        void (*before)(const void* owner, int64_t row) noexcept nogil
        void (*after)(const void* owner, int64_t row) noexcept nogil
        bint (*missed)(const void* owner, int64_t row, double* numbers) noexcept nogil
        const void* owner
        int n_others


cdef extern from "table.h" nogil:
    const char* FASTOPT_TABLE_CAPSULE
    enum:
        FASTOPT_N_TYPES
        FASTOPT_MAX_SLOTS
        FASTOPT_MAX_SCALARS
        FASTOPT_MAX_SUMS
        FASTOPT_MAX_FACTORS

    ctypedef void (*run_fn)(
        void* w, const void* g, void** slots, const void* h, Py_ssize_t n
    ) noexcept nogil
    ctypedef void (*decayed_fn)(
        void* w, const void* g, void** slots, const void* h, double rate, Py_ssize_t n
    ) noexcept nogil

    ctypedef void (*first_fn)(
        void* w, const void* g, void** slots, const void* h, double* sums, Py_ssize_t n
    ) noexcept nogil
    ctypedef void (*between_fn)(
        void** slots, const void* h, const double* sums, double count, double* factors
    ) noexcept nogil
    ctypedef void (*second_fn)(
        void* w, const void* g, void** slots, const void* h, const double* factors, Py_ssize_t n
    ) noexcept nogil

    ctypedef Py_ssize_t (*walk_fn)(
        const row_walk* u, const look_up* items, Py_ssize_t n
    ) noexcept nogil
    ctypedef void (*in_order_fn)(
        const row_walk* u, const uint32_t* rows, Py_ssize_t n
    ) noexcept nogil

    ctypedef struct rule_entry:
        const char* name
        int n_slots
        int n_scalars
        int sequential
        run_fn run[2]
        decayed_fn decayed[2]
        int reduction
        unsigned int row_slots
        int late
        first_fn first[2]
        between_fn between[2]
        second_fn second[2]
        walk_fn walk[2]
        in_order_fn in_order[2]

    ctypedef struct gather_job:
        pass
    ctypedef struct bag_job:
        pass
    ctypedef struct quantized_job:
        pass
    ctypedef struct bag_errors:
        pass
    ctypedef struct row_count:
        pass

    ctypedef struct run_table:
        int n_rules
        const rule_entry* rules
        void (*add[2])(void* out, const void* a, const void* b, Py_ssize_t n) noexcept nogil
        void (*add_scaled[2])(void* out, const void* a, double c, Py_ssize_t n) noexcept nogil
        void (*scale[2])(void* out, double c, Py_ssize_t n) noexcept nogil
        void (*shrink[2])(void* out, double c, Py_ssize_t n) noexcept nogil
        void (*decay[2])(void* out, double rate, Py_ssize_t n) noexcept nogil
        void (*move[2][2])(
            void* w, void* moving, void* over, const double* h, int n_moments, Py_ssize_t n
        ) noexcept nogil
        void (*make_up[2][2])(
            void* w, void* moving, void* over, const double* h, int n_moments,
            double keep_moving, double keep_over, Py_ssize_t n,
        ) noexcept nogil
        double (*squares[2])(const void* a, Py_ssize_t n) noexcept nogil
        double (*dot[2])(const void* a, const void* b, Py_ssize_t n) noexcept nogil
        double (*largest[2])(const void* a, Py_ssize_t n) noexcept nogil
        void (*times[2])(void* out, const void* a, double c, Py_ssize_t n) noexcept nogil
        void (*times_once[2])(void* out, const void* a, double c, Py_ssize_t n) noexcept nogil
        void (*bounded[2])(
            void* out, const void* a, double low, double high, Py_ssize_t n
        ) noexcept nogil
        void (*follow[2])(void* average, const void* a, double share, Py_ssize_t n) noexcept nogil
        void (*catch_up[2])(
            void* average, const void* a, double factor, Py_ssize_t n
        ) noexcept nogil
        void (*widen[2])(void* out, const void* a, Py_ssize_t n) noexcept nogil
        void (*narrow[2])(void* out, const void* a, Py_ssize_t n) noexcept nogil
        void (*narrow_random[2])(
            void* out, const void* a, uint32_t key, int64_t first, Py_ssize_t n
        ) noexcept nogil
        void (*refresh[2])(void* out, const void* a, Py_ssize_t n) noexcept nogil
        int64_t (*gather)(const gather_job* job, Py_ssize_t lo, Py_ssize_t hi) noexcept nogil
        void (*sum_bags[2])(
            const bag_job* job, Py_ssize_t lo, Py_ssize_t hi, bag_errors* errors
        ) noexcept nogil
        void (*lookup_quantized)(
            const quantized_job* job, Py_ssize_t lo, Py_ssize_t hi, bag_errors* errors
        ) noexcept nogil
        int64_t (*mark_rows)(
            uint64_t* bits, int64_t n_rows, const void* ids, int wide, uint32_t* copy,
            Py_ssize_t lo, Py_ssize_t hi
        ) noexcept nogil
        int64_t (*merge_marks)(
            uint64_t* bits, int n_others, int64_t stride, Py_ssize_t lo, Py_ssize_t hi
        ) noexcept nogil
        int64_t (*list_rows)(
            const uint64_t* bits, row_count* counts, void* rows, int wide, Py_ssize_t lo,
            Py_ssize_t hi, int64_t first, int64_t end
        ) noexcept nogil
        void (*number_rows)(
            const row_count* counts, uint32_t* numbers, Py_ssize_t lo, Py_ssize_t hi
        ) noexcept nogil
        void (*sum_products[2])(
            const uint32_t* numbers, const int64_t* offsets, const void* coefficients,
            const void* values, void* out, Py_ssize_t lo, Py_ssize_t hi
        ) noexcept nogil
        int (*sigmoid_cross_entropy)(
            const float* labels, const float* logits, float* loss, float* slope, Py_ssize_t n
        ) noexcept nogil
