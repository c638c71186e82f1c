"""Rules whose step is in proportion to a variable's own norm: LAMB and LARS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._pairs import Pair
from fastopt._validate import Flag, Real
from fastopt.graph import Graph
from fastopt.indexed_slices import IndexedSlices
from fastopt.optimizers._decay import WEIGHT_DECAY
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot
from fastopt.optimizers._plans import PlanBatch
from fastopt.optimizers._powers import BETAS, PowersOptimizer
from fastopt.variable import Variable


class _LayerWise(KernelOptimizer):
    """A rule that needs the whole gradient of a variable at once."""

    _own_flags = frozenset({"layer_adaptation"})

    def _planned(self, pairs: list[Pair]) -> PlanBatch:
        return super()._planned([(_whole(gradient, var), var) for gradient, var in pairs])


def _whole(gradient: Any, var: Variable) -> Any:
    """Return a gradient as an array of the variable's shape."""
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(gradient.values, gradient.indices, var.shape).to_dense()
    return gradient


class LAMBOptimizer(_LayerWise, PowersOptimizer):
    """LAMB: Adam whose step has the length of the weights, for large batches [1]_.

    In call ``t``, counted from 1, with norms over the whole variable::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        u = m / (1 - beta1**t) / (sqrt(v / (1 - beta2**t)) + epsilon) + weight_decay * w
        w = w - learning_rate * norm(w) / norm(u) * u

    Where one of the norms is zero their ratio counts as 1. Slots ``m`` and ``v``, from zeros. The
    powers of the betas are the variables ``beta1_power`` and ``beta2_power``, one pair for all
    variables of the optimizer: they count calls. The norms are summed in float64, in an order that
    depends on the size of a variable alone.

    A sparse gradient counts as the dense one that it stands for: the norms are those of the whole
    variable, and all rows move. So a step costs a pass over the whole table.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    beta1, beta2 : float, callable, Variable or array_like scalar
        How much of the averages stays in a step, in [0, 1).
    epsilon : float, callable, Variable or array_like scalar
        Keeps the denominator from zero; not negative.
    weight_decay : float, callable, Variable or array_like scalar
        How much of the weights joins the step, not negative.
    layer_adaptation : bool
        Use the ratio of norms. ``configure(bias, layer_adaptation=False, weight_decay=0.0)`` leaves
        biases and the like out, as is usual.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number within its bounds, or not a bool.

    References
    ----------
    .. [1] Y. You et al., "Large batch optimization for deep learning: training BERT in 76 minutes",
       ICLR 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([3.0, 4.0]), name="w")
    >>> opt = fo.LAMBOptimizer(learning_rate=0.5)
    >>> done = opt.apply_gradients([(np.array([8.0, 0.0]), w)])
    >>> w.numpy().round(3)
    array([0.5, 4. ])
    """

    _constraints = {**BETAS, "weight_decay": WEIGHT_DECAY, "layer_adaptation": Flag()}
    _slot_table = (Slot("m"), Slot("v"))

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-6,
        weight_decay: Any = 0.0,
        layer_adaptation: bool = True,
        use_locking: bool = False,
        name: str = "LAMB",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            weight_decay=weight_decay,
            layer_adaptation=layer_adaptation,
        )

    def _rule(self) -> str:
        return "lamb"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        power1, power2 = self._powers(graph)
        return (
            values["learning_rate"],
            1.0 - values["beta1"],
            1.0 - values["beta2"],
            1.0 - power1,
            1.0 - power2,
            values["epsilon"],
            values["weight_decay"],
            float(values["layer_adaptation"]),
        )


class LARSOptimizer(_LayerWise):
    """LARS: momentum whose rate is in proportion to the weights, for large batches [1]_.

    With norms over the whole variable::

        trust = eeta * norm(w) / (norm(g) + weight_decay * norm(w) + epsilon)
        a = momentum * a + g + weight_decay * w
        w = w - learning_rate * trust * a                                       plain
        w = w - learning_rate * trust * (g + weight_decay * w + momentum * a)    use_nesterov

    Where one of the norms is zero ``trust`` is 1. The slot ``momentum`` holds ``a``, from zeros; as
    in `MomentumOptimizer` and in TensorFlow's contributed class the rate is not folded into it (in
    the paper it is). The norms are summed in float64, in an order that depends on the size of a
    variable alone.

    A sparse gradient counts as the dense one that it stands for: the norms are those of the whole
    variable, and all rows coast and decay. So a step costs a pass over the whole table.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size; negative ascends. A callable is called, and anything but a plain number is
        read, once in every step.
    momentum : float, callable, Variable or array_like scalar
        How much of ``a`` stays.
    weight_decay : float, callable, Variable or array_like scalar
        How much of the weights joins the gradient, not negative.
    eeta : float, callable, Variable or array_like scalar
        The trust coefficient: how far a step goes, in proportion to the weights; not negative.
    epsilon : float, callable, Variable or array_like scalar
        Keeps the denominator from zero; not negative.
    layer_adaptation : bool
        Use ``trust``. ``configure(bias, layer_adaptation=False, weight_decay=0.0)`` leaves biases
        and the like out, as is usual.
    use_nesterov : bool
        Whether to look ahead as Nesterov's method does.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number within its bounds, or not a bool.

    References
    ----------
    .. [1] Y. You, I. Gitman, B. Ginsburg, "Large batch training of convolutional networks",
       arXiv:1708.03888, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.array([3.0, 4.0]), name="w")
    >>> opt = fo.LARSOptimizer(1.0, weight_decay=0.0, eeta=0.25)
    >>> done = opt.apply_gradients([(np.array([10.0, 0.0]), w)])
    >>> w.numpy()
    array([1.75, 4.  ])
    """

    _constraints = {
        "learning_rate": Real(),
        "momentum": Real(),
        "weight_decay": WEIGHT_DECAY,
        "eeta": Real(ge=0),
        "epsilon": Real(ge=0),
        "layer_adaptation": Flag(),
        "use_nesterov": Flag(),
    }
    _slot_table = (Slot("momentum"),)

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any = 0.9,
        weight_decay: Any = 0.0001,
        eeta: Any = 0.001,
        epsilon: Any = 0.0,
        layer_adaptation: bool = True,
        use_nesterov: bool = False,
        use_locking: bool = False,
        name: str = "LARS",
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            eeta=eeta,
            epsilon=epsilon,
            layer_adaptation=layer_adaptation,
            use_nesterov=use_nesterov,
        )

    def _rule(self) -> str:
        return "lars_nesterov" if self._hyperparameters["use_nesterov"] else "lars"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        return (
            values["learning_rate"],
            values["momentum"],
            values["weight_decay"],
            values["eeta"],
            values["epsilon"],
            float(values["layer_adaptation"]),
        )
