from typing import Any, Literal

import numpy as np

class Plan:
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
    ) -> None: ...
    def bind(self, pairs: list[tuple[Any, Any]]) -> bool: ...
    def run(self, scalars: tuple[float, ...] | list[tuple[float, ...]]) -> None: ...
    def release(self) -> None: ...
