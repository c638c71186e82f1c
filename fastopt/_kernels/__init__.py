"""Compiled kernels: they know arrays of numbers, rows and threads, and trust their caller."""

import importlib
from pathlib import Path

try:
    importlib.import_module(f"{__name__}._dispatch")
except ModuleNotFoundError as error:
    # Nothing slower stands in for them: a fallback that nobody notices would be taken for us.
    raise ImportError(
        f"the compiled kernels of fastopt are missing from {Path(__file__).parent}. If that is a "
        "checkout, install it (pip install .) and start Python in another directory, or build the "
        "kernels in place (python setup.py build_ext --inplace)"
    ) from error
