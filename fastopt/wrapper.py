"""`OptimizerWrapper`: what optimizers that put something around another one have in common."""

from __future__ import annotations

from typing import Any, NoReturn

from fastopt._arrays import shown
from fastopt._sums import Collected
from fastopt.loss_scale import LossScale
from fastopt.operation import Operation
from fastopt.optimizer import Optimizer
from fastopt.variable import Variable


class OptimizerWrapper(Optimizer):
    """An optimizer that leaves computing and applying gradients to another one.

    A subclass overrides ``_apply_once``, `compute_gradients` or both, and calls `apply_gradients`
    and `compute_gradients` of ``self._optimizer``. ``_apply_once`` is called once for all replicas,
    with the sums of their gradients.

    Parameters
    ----------
    opt : Optimizer
        The optimizer that does the work. The wrapper takes over its name and locking.

    Raises
    ------
    ValueError
        If `opt` is not an optimizer.
    """

    def __init__(self, opt: Optimizer) -> None:
        if not isinstance(opt, Optimizer):
            raise ValueError(f"opt must be an Optimizer, got {shown(opt)}")
        super().__init__(opt._use_locking, opt.get_name())
        self._optimizer = opt

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Compute gradients with the wrapped optimizer; see :meth:`Optimizer.compute_gradients`."""
        return self._optimizer.compute_gradients(
            loss,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )

    def _apply_once(
        self, pairs: list[Any], global_step: Variable | None, name: str | None
    ) -> Operation:
        return self._optimizer.apply_gradients(pairs, global_step, name)

    def variables(self) -> list[Variable]:
        """Return the wrapped optimizer's variables."""
        return self._optimizer.variables()

    def doing_loss_scaling(self) -> bool:
        """Say whether the wrapped optimizer scales the loss."""
        return self._optimizer.doing_loss_scaling()

    def _make_loss_scale(self, loss_scale: Any) -> LossScale | None:
        # What the environment asks for is asked of the wrapped optimizer.
        return None

    def _has_collected(self, var: Variable) -> bool:
        """Say whether there are gradients of a variable that have not been applied."""
        return False

    def _collected_now(self) -> Collected | None:
        """Return what has been collected for a step that is not done yet, if this one collects."""
        return None

    def _set_collected(self, collected: Collected) -> None:
        """Go on from what `_collected_now` returned, in another process say."""

    def _refuse(self, *args: Any) -> NoReturn:
        raise RuntimeError(
            f"{type(self).__name__} updates nothing itself; the wrapped optimizer does"
        )

    _apply_dense = _apply_sparse = _refuse  # type: ignore[assignment]
    _apply_sparse_duplicate_indices = _refuse  # type: ignore[assignment]
    _resource_apply_dense = _resource_apply_sparse = _refuse  # type: ignore[assignment]
    _resource_apply_sparse_duplicate_indices = _refuse  # type: ignore[assignment]
