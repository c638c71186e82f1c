"""Recording a call whose derivatives are at hand, input by input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastopt.autodiff.primitives import Primitive
from fastopt.autodiff.recording import EAGER, current

Vjp = Callable[[Any], Any]
Together = Callable[[Any], Sequence[Any] | None]


# A derivative has at hand what it needs: of the arguments nothing is kept, whichever they are.
_NOTHING: frozenset[int] = frozenset()
_KEPT: dict[tuple[int, ...], frozenset[int] | None] = {}


class _Recorded(Primitive):
    """One call and the derivative of each of its inputs.

    It is made once a call, so without what `Primitive` sets for functions that are called again.
    """

    holomorphic = False
    builtin = True

    def __init__(self, name: str, vjps: Sequence[Vjp]) -> None:
        self.name = name
        self.blocked = _NOTHING
        self._kept = _KEPT
        self.pullbacks = vjps

    def _keep(self, argnums: tuple[int, ...]) -> frozenset[int]:
        self._kept[argnums] = _NOTHING
        return _NOTHING

    def lacks(self, argnums: Iterable[int]) -> int | None:
        """Return None: every input has a derivative."""
        return None

    def pull(self, node: Any, argnums: Sequence[int], g: Any) -> Sequence[Any]:
        """Return the gradients of the inputs at `argnums`."""
        return [self.pullbacks[i](g) for i in argnums]


class _RecordedTogether(_Recorded):
    """A call whose derivatives are cheaper together."""

    def __init__(self, name: str, vjps: Sequence[Vjp], together: Together) -> None:
        super().__init__(name, vjps)
        self.together = together

    def pull(self, node: Any, argnums: Sequence[int], g: Any) -> Sequence[Any]:
        """Return the gradients of the inputs at `argnums`."""
        if len(argnums) == len(self.pullbacks):
            found = self.together(g)
            if found is not None:
                return found
        return super().pull(node, argnums, g)


def record(
    name: str,
    value: Any,
    inputs: Sequence[tuple[Any, Vjp]],
    reads: Any = None,
    together: Together | None = None,
) -> Any:
    """Return `value` as a tensor that remembers what it came from.

    Parameters
    ----------
    name : str
        What messages call the operation.
    value : ndarray
        The result.
    inputs : sequence of (Differentiable or ndarray, callable)
        What it was computed from, and the function that maps the gradient of the result to that of
        the input. Such a function must not read memory that an optimizer may have changed by then:
        neither a variable's storage nor a view of it.
    reads : object, optional
        An array, or an object with arrays as attributes, that the functions read and that somebody
        else owns.
    together : callable, optional
        Maps the gradient of the result to those of all inputs, or to None: then each is asked for.

    Returns
    -------
    Tensor or ndarray
        `value` itself where nothing is recorded.
    """
    if current() is EAGER:
        return value
    vjps = [vjp for _, vjp in inputs]
    operation = (
        _Recorded(name, vjps) if together is None else _RecordedTogether(name, vjps, together)
    )
    return operation.record([x for x, _ in inputs], {"reads": reads}, value)
