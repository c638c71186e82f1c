"""`MixedPrecisionLossScaleOptimizer`: a loss scale around any optimizer."""

from __future__ import annotations

from typing import Any

from fastopt import _pairs
from fastopt._unscaling import scale_loss, unscale_gradients
from fastopt.distribute import in_cross_replica_context
from fastopt.loss_scale import LossScale, apply_if_finite, get
from fastopt.operation import Operation
from fastopt.optimizer import Optimizer
from fastopt.variable import Variable
from fastopt.wrapper import OptimizerWrapper


class MixedPrecisionLossScaleOptimizer(OptimizerWrapper):
    """An optimizer that scales the loss for another one.

    ``compute_gradients`` multiplies the loss by the scale and the gradients by its reciprocal.
    ``apply_gradients`` lets the wrapped optimizer apply them, unless the scale is dynamic and one
    of them is not finite: then no variable, slot or step counter moves, only the scale does.

    Parameters
    ----------
    opt : Optimizer
        The optimizer that does the work. The wrapper takes over its name and locking.
    loss_scale : int, float, "dynamic" or LossScale
        See :func:`fastopt.loss_scale.get`.

    Raises
    ------
    ValueError
        If `opt` is not an optimizer or scales the loss itself, or `loss_scale` is ``None`` or no
        loss scale.

    Notes
    -----
    As in TensorFlow, slots are the wrapped optimizer's: ``get_slot`` and ``get_slot_names`` of the
    wrapper know none. Where TensorFlow updates the scale first and then fails (all gradients
    ``None``, say), a call that fails changes nothing here.

    Examples
    --------
    >>> import fastopt as fo
    >>> import numpy as np
    >>> w = fo.Variable(np.array([1.0, 2.0]), name="w")
    >>> opt = fo.MixedPrecisionLossScaleOptimizer(fo.GradientDescentOptimizer(0.5), "dynamic")
    >>> done = opt.minimize(lambda: np.sum(w * w))
    >>> done = opt.apply_gradients([(np.array([np.nan, 1.0]), w)])
    >>> w.numpy(), float(opt.loss_scale())
    (array([0., 0.]), 16384.0)
    """

    def __init__(self, opt: Optimizer, loss_scale: Any) -> None:
        super().__init__(opt)
        if opt.doing_loss_scaling():
            raise ValueError(
                f"opt must not scale the loss itself, as {opt!r} does: its gradients would be"
                " scaled twice"
            )
        scale = get(loss_scale)
        if scale is None:
            raise ValueError("loss_scale must not be None")
        self._loss_scale: LossScale = scale

    @property
    def loss_scale(self) -> LossScale:
        """The loss scale."""
        return self._loss_scale

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Compute the gradients of the scaled loss, and unscale them.

        The scale is read once, when this is called. Gradients of 16 bits are returned in float32,
        where they don't vanish. See :meth:`Optimizer.compute_gradients`.
        """
        scale = float(self._loss_scale())
        pairs = super().compute_gradients(
            scale_loss(loss, scale),
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        gradients = unscale_gradients([gradient for gradient, _ in pairs], scale, widen=True)
        return [(gradient, var) for gradient, (_, var) in zip(gradients, pairs, strict=True)]

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Let the wrapped optimizer apply the gradients, if they are fit for it.

        See :meth:`Optimizer.apply_gradients`. The operation of a step that was skipped has no
        variables.
        """
        if in_cross_replica_context():  # as in TensorFlow no RuntimeError
            raise ValueError("apply_gradients() must be called in a replica context")
        return super().apply_gradients(grads_and_vars, global_step, name)

    def doing_loss_scaling(self) -> bool:
        """Return True."""
        return True

    def _apply_once(
        self, pairs: list[Any], global_step: Variable | None, name: str | None
    ) -> Operation:
        gradients = [_pairs.split(pair, position)[0] for position, pair in enumerate(pairs)]
        name = name or self._name

        def apply() -> Operation:
            return self._optimizer.apply_gradients(pairs, global_step, f"{name}-wrapped")

        def skip() -> Operation:
            return self._nothing_applied(global_step, name)

        done: Operation = apply_if_finite(self._loss_scale, gradients, apply, skip)
        return done

    def variables(self) -> list[Variable]:
        """Return the wrapped optimizer's variables, then those of the loss scale."""
        return super().variables() + self._loss_scale.variables()
