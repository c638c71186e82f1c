"""The libraries that are measured, one module each.

A module has ``builders(work, threads)``, which returns for each way of the library to do the
workload a function that prepares it, and may have ``start(threads)``. This page knows of each
library what can be known without importing it.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


def cache_directory() -> Path:
    """Return where compiled probes and extensions are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fastopt-bench"


def _one_blas_thread(threads: int) -> dict[str, str]:
    # As the README recommends: fastopt shares products among its own threads then.
    return {"OPENBLAS_NUM_THREADS": "1"}


def _quiet_tensorflow(threads: int) -> dict[str, str]:
    return {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"}


def _jax_threads(threads: int) -> dict[str, str]:
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return {"JAX_PLATFORMS": "cpu"} | ({"XLA_FLAGS": flags} if threads == 1 else {})


def _own_extensions(threads: int) -> dict[str, str]:
    return {"TORCH_EXTENSIONS_DIR": str(cache_directory() / "torch-extensions")}


def _nothing(threads: int) -> dict[str, str]:
    return {}


@dataclasses.dataclass(frozen=True)
class Peer:
    """What is known of a library before it is imported.

    Attributes
    ----------
    title : str
        Its name in the table.
    requires : tuple of str
        Modules that must be importable.
    packages : tuple of str
        Distributions whose versions are told.
    environment : callable
        Variables of the worker's environment, for a number of threads.
    threads : tuple of int or None
        Numbers of threads it can use; None: any.
    """

    title: str
    requires: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    environment: Callable[[int], Mapping[str, str]] = _nothing
    threads: tuple[int, ...] | None = None


CANDIDATE = "fastopt_"
LIMIT = "limit"

PEERS: dict[str, Peer] = {
    CANDIDATE: Peer("fastopt", ("fastopt",), ("fastopt",), _one_blas_thread),
    LIMIT: Peer("limit"),
    "numpy_": Peer("NumPy", ("numpy", "scipy"), ("numpy", "scipy"), threads=(1,)),
    "pytorch": Peer("PyTorch", ("torch",), ("torch",)),
    "tensorflow_": Peer(
        "TensorFlow v1", ("tensorflow",), ("tensorflow", "tensorflow-cpu"), _quiet_tensorflow
    ),
    "fbgemm": Peer("FBGEMM", ("torch", "fbgemm_gpu"), ("fbgemm-gpu-cpu", "fbgemm-gpu")),
    "deepspeed_": Peer("DeepSpeed", ("torch", "deepspeed"), ("deepspeed",), _own_extensions),
    "jax_": Peer("JAX", ("jax", "optax"), ("jax", "optax"), _jax_threads),
    "autograd_": Peer("autograd", ("autograd",), ("autograd",)),
    "sklearn_": Peer("scikit-learn", ("sklearn",), ("scikit-learn",), threads=(1,)),
    "vowpal_wabbit": Peer("VW", ("vowpalwabbit",), ("vowpalwabbit",), threads=(1,)),
    "gensim_": Peer("gensim", ("gensim",), ("gensim",)),
}


def importable(modules: Iterable[str]) -> bool:
    """Say whether all modules can be found, without importing them."""
    return all(find_spec(module) is not None for module in modules)


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def load(key: str) -> ModuleType:
    """Import the module of a peer, and so the library."""
    return importlib.import_module(f"bench.peers.{key}")
