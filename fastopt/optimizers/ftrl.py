"""Follow the regularized leader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastopt._validate import Real, Text
from fastopt.graph import Graph
from fastopt.optimizers._kernel_optimizer import KernelOptimizer, Scalars, Slot


class FtrlOptimizer(KernelOptimizer):
    """FTRL-Proximal: linear models with exact zeros, from sparse gradients [1]_.

    The update is::

        p(x) = x**-learning_rate_power    by default sqrt(x)
        n = accum + g**2
        linear = linear + g + 2 * shrinkage * w - (p(n) - p(accum)) / learning_rate * w
        w = (sign(linear) * l1 - linear) / ((p(n) + beta) / learning_rate + 2 * l2)
        w = 0  where |linear| <= l1
        accum = n

    Slots ``accum``, from `initial_accumulator_value`, and ``linear``, from zeros. The accumulator
    grows by the raw gradient, without shrinkage.

    The weight is computed anew in each update. So the first update of a weight forgets most of its
    initial value, also when the gradient is zero: a dense gradient of zero makes it 0. With a
    sparse gradient only the rows that it lists change; repeated rows are summed first. Where all of
    accumulator, gradient, beta and l2 are zero the weight is 0 (TensorFlow's sparse kernel has 0/0
    there). It is 0, too, where a gradient that was NaN has made ``linear`` NaN, as in TensorFlow's
    dense kernel; its sparse one has NaN.

    Parameters
    ----------
    learning_rate : float, callable, Variable or array_like scalar
        The step size, greater than 0. A callable is called, and anything but a plain number is
        read, once in every step; so for all but the initial value.
    learning_rate_power : float, callable, Variable or array_like scalar
        How the step shrinks, at most 0. With 0 it doesn't.
    initial_accumulator_value : float
        The value the accumulators start from, not negative.
    l1_regularization_strength, l2_regularization_strength : float, callable, Variable or array_like
    scalar
        Penalties on the weights, not negative; `l1` makes exact zeros.
    use_locking : bool
        See `Optimizer`.
    name : str
        The name of the optimizer.
    loss_scale : int, float, "dynamic" or LossScale, optional
        See `Optimizer`. Keyword only.
    accum_name, linear_name : str, optional
        What stands in the names of the slots for the optimizer's name.
    l2_shrinkage_regularization_strength : float, callable, Variable or array_like scalar
        A penalty on the weights as they are at each step, not negative: it works on the gradient,
        while `l2` belongs to what is minimized.
    beta : float, callable, Variable or array_like scalar, optional
        The beta of the paper, which slows the first steps, not negative; ``None`` is 0.

    Raises
    ------
    TypeError, ValueError
        If a hyperparameter is not a finite real number within its bounds.

    References
    ----------
    .. [1] H. B. McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> w = fo.Variable(np.zeros(2), name="w")
    >>> opt = fo.FtrlOptimizer(0.5, initial_accumulator_value=0.0, l1_regularization_strength=1.0)
    >>> done = opt.apply_gradients([(np.array([0.5, -2.0]), w)])
    >>> w.numpy()
    array([0.  , 0.25])
    """

    _constraints = {
        "initial_accumulator_value": Real(ge=0, fixed=True),
        "learning_rate_power": Real(le=0),
        "l1_regularization_strength": Real(ge=0),
        "l2_regularization_strength": Real(ge=0),
        "l2_shrinkage_regularization_strength": Real(ge=0),
        "learning_rate": Real(gt=0),
        "beta": Real(ge=0, optional=True),
        "accum_name": Text(),
        "linear_name": Text(),
    }
    _common = frozenset({"learning_rate_power"})  # it chooses the rule
    _slot_table = (
        Slot("accum", initial="initial_accumulator_value", op_name="accum_name"),
        Slot("linear", op_name="linear_name"),
    )

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: Any = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: Any = 0.0,
        beta: Any = None,
        *,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(
            use_locking,
            name,
            loss_scale,
            learning_rate=learning_rate,
            learning_rate_power=learning_rate_power,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
            beta=beta,
            accum_name=accum_name,
            linear_name=linear_name,
        )

    def _rule(self) -> str:
        power = self._hyperparameters["learning_rate_power"]
        return "ftrl" if type(power) is float and power == -0.5 else "ftrl_power"

    def _scalars(self, values: Mapping[str, Any], graph: Graph) -> Scalars:
        rate = values["learning_rate"]
        scalars = (
            1.0 / rate,
            values["l1_regularization_strength"],
            2.0 * values["l2_regularization_strength"] + values["beta"] / rate,
            2.0 * values["l2_shrinkage_regularization_strength"],
        )
        if self._rule_name == "ftrl":
            return scalars
        return (*scalars, -values["learning_rate_power"])
