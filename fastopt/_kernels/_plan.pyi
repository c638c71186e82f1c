from typing import Any, Literal

import numpy as np

from ._deferred import Ledger
from ._parts import Parts

class Plan(Parts):
    @property
    def rows_touched(self) -> int: ...
    @property
    def dense_parameters(self) -> int: ...
    def __init__(
        self,
        rule: str,
        keys: list[Any],
        arrays: list[np.ndarray],
        slots: list[tuple[np.ndarray, ...]],
        slices_type: type,
        untouched: Literal["skip", "update"] = "skip",
        ledgers: list[Ledger | None] | None = None,
        halves: list[np.ndarray | None] | None = None,
        decay_listed: bool = False,
        dense_only: list[bool] | None = None,
        rounding_keys: list[int] | None = None,
    ) -> None: ...
    def bind(self, pairs: list[tuple[Any, Any]]) -> bool: ...
    def run(
        self,
        scalars: tuple[float, ...] | list[tuple[float, ...]],
        decay: float | list[float] = 0.0,
        key: int = 0,
    ) -> None: ...
    def release(self) -> None: ...
