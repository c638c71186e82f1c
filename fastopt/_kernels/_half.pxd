cdef int half_type(object half, object master, str what) except -1
