"""What a kernel says when it has given up the interpreter's lock, and before it asks for it."""

cdef void leave_python() noexcept nogil
cdef void return_to_python() noexcept nogil
