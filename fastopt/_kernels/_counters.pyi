from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

class Versioned:
    _version: int

class StepRecord:
    name: str
    type: str
    sparse_rows: int
    dense_parameters: int
    step: int | float | None
    _variables: tuple[Any, ...]
    def __init__(
        self,
        name: str,
        type: str,
        variables: tuple[Any, ...] = (),
        sparse_rows: int = 0,
        dense_parameters: int = 0,
        step: int | float | None = None,
    ) -> None: ...

def can_count(counter: np.ndarray) -> bool: ...
def count(counter: np.ndarray) -> int | float: ...
def raise_versions(pairs: Sequence[tuple[Any, Any]]) -> None: ...

class Powers:
    def __init__(self, names: tuple[str, ...], arrays: tuple[Any, ...]) -> None: ...
    def read(self) -> tuple[float, ...]: ...
    def advance(self, values: Mapping[str, float]) -> None: ...
