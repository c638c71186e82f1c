from typing import Any

def shrink(
    array: Any, rate: float, rows: Any = None, others: bool = False, half: Any = None
) -> None: ...
