import numpy as np

class Constants: ...  # for other kernels

class Ledger:
    rule: str
    w: np.ndarray
    half: np.ndarray | None
    slots: tuple[np.ndarray, ...]
    @property
    def pending(self) -> bool: ...
    @property
    def clock(self) -> int: ...
    @property
    def rows_made_up(self) -> int: ...
    def __init__(
        self,
        rule: str,
        w: np.ndarray,
        slots: tuple[np.ndarray, ...],
        half: np.ndarray | None = None,
        at_once: bool = False,
    ) -> None: ...
    def last(self) -> np.ndarray: ...
    def settle(self) -> None: ...
    def settle_rows(self, ids: np.ndarray) -> None: ...
    def gather(self, ids: np.ndarray, out: np.ndarray) -> None: ...
