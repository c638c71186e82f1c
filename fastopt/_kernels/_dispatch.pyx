# cython: language_level=3
"""Choose the instruction-set level, once, at import.

Exactly one run module is imported: importing one that was compiled for a better processor may
itself end the process. The environment variable ``FASTOPT_SIMD`` lowers the level.
"""

import importlib
import os

from cpython.pycapsule cimport PyCapsule_GetPointer

from ._typedefs cimport FASTOPT_TABLE_CAPSULE, run_table

cdef extern from "cpu.h" nogil:
    int cpu_level() noexcept

cdef extern from *:
    """
    #if defined(__clang__)
    #define FASTOPT_COMPILER "clang " __clang_version__
    #elif defined(__GNUC__)
    #define FASTOPT_COMPILER "gcc " __VERSION__
    #else
    #define FASTOPT_COMPILER "unknown"
    #endif
    """
    const char* FASTOPT_COMPILER

cdef const run_table* table = NULL

_SUPPORTED = ("base", "v3", "v4")[: cpu_level() + 1]


def _choose():
    wish = os.environ.get("FASTOPT_SIMD", "")
    if not wish:
        return _SUPPORTED[-1]
    if wish not in _SUPPORTED:
        raise ImportError(
            f"FASTOPT_SIMD={wish!r} is not possible here: this processor supports "
            + ", ".join(_SUPPORTED)
        )
    return wish


_LEVEL = _choose()
# Kept, since the table lives in the module.
_RUN = importlib.import_module(f"fastopt._kernels._run_{_LEVEL}")
table = <const run_table*>PyCapsule_GetPointer(_RUN.table, FASTOPT_TABLE_CAPSULE)


cdef const run_table* functions() noexcept nogil:
    return table


def level():
    """Return the instruction-set level in use: "base", "v3" or "v4"."""
    return _LEVEL


def supported_levels():
    """Return the levels that this processor supports, lowest first."""
    return _SUPPORTED


def compiler():
    """Return the name and version of the compiler that built the kernels."""
    return FASTOPT_COMPILER.decode("ascii").strip()
