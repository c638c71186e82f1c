"""The page of rules: each update rule once, as the arithmetic of one element.

The build renders every body into run functions (``run.pxi.in``) for each type and each
instruction-set level; plans look up here what a rule wants. The page imports nothing from
fastopt, since the build reads it before the package exists.

A body is a list of assignments. It sees the weight ``w``, the gradient ``g``, the slots and the
scalars of the step by name; any other name is a temporary. An expression is Cython, in the
compute type throughout: ``sqrt, pow, fabs, copysign, fmax, fmin, exp, log1p`` and

    ``flush(x)``   0 where ``x`` is subnormal, else ``x``.

A slot that shrinks by a factor at every step ends among the subnormal numbers, where arithmetic
is many times slower, and stays there; such slots are flushed.

Scalars are made once a step in float64 and rounded once to the compute type. What depends on
scalars alone (``1 - beta1``, ``1 / lr``) is made there too, in float64, and not in a body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Rule:
    """One update rule.

    Attributes
    ----------
    name : str
        Also the name of its run functions.
    slots : tuple of str
        Arrays of the variable's shape, in the order in which a plan takes them.
    scalars : tuple of str
        Numbers of a step, in the order in which :meth:`Plan.run` takes them.
    body : str
        The update of one element.
    duplicates : {"sum", "sequential"}
        What a repeated row means: its gradients are summed in order of arrival and the rule runs
        once, or the rule runs once for each of them in order of arrival.
    """

    name: str
    slots: tuple[str, ...]
    scalars: tuple[str, ...]
    body: str
    duplicates: Literal["sum", "sequential"] = "sum"


_PAGE = (
    Rule(
        "gradient_descent",
        slots=(),
        scalars=("lr",),
        body="""
            w = w - g * lr
        """,
        duplicates="sequential",
    ),
    # The accumulator holds the undamped sum: the learning rate is not folded into it.
    Rule(
        "momentum",
        slots=("momentum",),
        scalars=("lr", "mu"),
        body="""
            momentum = flush(momentum * mu + g)
            w = w - momentum * lr
        """,
    ),
    Rule(
        "momentum_nesterov",
        slots=("momentum",),
        scalars=("lr", "mu"),
        body="""
            momentum = flush(momentum * mu + g)
            w = w - (g * lr + momentum * mu * lr)
        """,
    ),
    Rule(
        "adagrad",
        slots=("accumulator",),
        scalars=("lr",),
        body="""
            accumulator = accumulator + g * g
            w = w - g * lr / sqrt(accumulator)
        """,
    ),
    # lr is the bias-corrected step, lr * sqrt(1 - beta2**t) / (1 - beta1**t). The averages are
    # written with 1 - beta alone: beta and 1 - beta, each rounded to float32, don't add up to one.
    Rule(
        "adam",
        slots=("m", "v"),
        scalars=("lr", "one_minus_beta1", "one_minus_beta2", "epsilon"),
        body="""
            m = flush(m + (g - m) * one_minus_beta1)
            v = flush(v + (g * g - v) * one_minus_beta2)
            w = w - m * lr / (sqrt(v) + epsilon)
        """,
    ),
    # inv_lr = 1 / lr, two_l2 = 2 * l2 + beta / lr, two_shrinkage = 2 * shrinkage. The weight is 0
    # where linear is within l1 or not a number, and where the quotient has no denominator.
    Rule(
        "ftrl",
        slots=("accum", "linear"),
        scalars=("inv_lr", "l1", "two_l2", "two_shrinkage"),
        body="""
            shrunk = g + two_shrinkage * w if two_shrinkage > 0 else g
            n = accum + g * g
            root = sqrt(n)
            linear = linear + shrunk - (root - sqrt(accum)) * inv_lr * w
            quotient = root * inv_lr + two_l2
            target = (copysign(l1, linear) - linear) / quotient
            w = target if (fabs(linear) > l1) & (quotient > 0) else 0
            accum = n
        """,
    ),
    # As ftrl, with accum ** exponent in the place of the square root: exponent is minus the
    # learning rate power.
    Rule(
        "ftrl_power",
        slots=("accum", "linear"),
        scalars=("inv_lr", "l1", "two_l2", "two_shrinkage", "exponent"),
        body="""
            shrunk = g + two_shrinkage * w if two_shrinkage > 0 else g
            n = accum + g * g
            root = pow(n, exponent)
            linear = linear + shrunk - (root - pow(accum, exponent)) * inv_lr * w
            quotient = root * inv_lr + two_l2
            target = (copysign(l1, linear) - linear) / quotient
            w = target if (fabs(linear) > l1) & (quotient > 0) else 0
            accum = n
        """,
    ),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in _PAGE}
