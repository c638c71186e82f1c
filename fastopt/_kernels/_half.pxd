cdef int half_number(object dtype) except? -1
cdef int half_type(object half, object master, str what) except -1
