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

A rule may need a sum before it can update: over a row, or over the whole variable. Then it has
three parts. `first` is a pass over the elements; what it assigns to a name of `sums` is added up,
in float64, in an order that depends on sizes alone. `between` comes once a row, or once a variable,
in float64: it sees the sums, ``count``, which is how many elements were summed, the scalars and the
slots that have one number a row. `body` is the second pass, and sees what `between` has assigned.

Scalars are made once a step in float64 and rounded once to the compute type. What depends on
scalars alone (``1 - beta1``, ``1 / lr``) is made there too, in float64, and not in a body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Untouched:
    """What a rule does to an element in a step in which its gradient is zero.

    Told here, a plan need not do it in that step: it is made up for later, in one go for many
    steps (``deferred.hpp``). In such a step each of the `shrinking` slots is multiplied by a
    number, then::

        w = w - lr * moving / (root(over) + epsilon)

    All names are those of the rule's slots and scalars. `lr` may differ from step to step; what
    the slots are multiplied by, and epsilon, should stay for many steps. The decay of weights,
    which comes before a step of any rule, is not told here: a plan is given its rate.

    Attributes
    ----------
    shrinking : tuple of (str, str)
        Slots, and for each the scalar by which it is multiplied; for a scalar whose name begins
        with "one_minus_", one minus the scalar. Other slots stay as they are.
    moving : str, optional
        The slot that moves the weight, one of `shrinking`. None: the weight does not move.
    over : str, optional
        The slot in the denominator.
    root : {"sqrt", "identity"}
        What is taken of the slot in the denominator.
    lr, epsilon : str, optional
        Scalars.
    """

    shrinking: tuple[tuple[str, str], ...] = ()
    moving: str | None = None
    over: str | None = None
    root: Literal["sqrt", "identity"] = "sqrt"
    lr: str | None = None
    epsilon: str | None = None


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
    untouched : Untouched, optional
        What it does where the gradient is zero. None: nothing, or what cannot be deferred.
    reduction : {"", "row", "variable"}
        What is summed up before the update.
    sums : tuple of str
        The names of the sums.
    first, between : str
        The parts before `body`; see above.
    row_slots : tuple of str
        Those of the slots that have one number a row.
    """

    name: str
    slots: tuple[str, ...]
    scalars: tuple[str, ...]
    body: str
    duplicates: Literal["sum", "sequential"] = "sum"
    untouched: Untouched | None = None
    reduction: Literal["", "row", "variable"] = ""
    sums: tuple[str, ...] = ()
    first: str = ""
    between: str = ""
    row_slots: tuple[str, ...] = ()


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
        untouched=Untouched(
            shrinking=(("m", "one_minus_beta1"), ("v", "one_minus_beta2")),
            moving="m",
            over="v",
            lr="lr",
            epsilon="epsilon",
        ),
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
    # The learning rate is folded into momentum.
    Rule(
        "rmsprop",
        slots=("rms", "momentum"),
        scalars=("lr", "mu", "one_minus_decay", "epsilon"),
        body="""
            rms = flush(rms + (g * g - rms) * one_minus_decay)
            momentum = flush(momentum * mu + g * lr / sqrt(rms + epsilon))
            w = w - momentum
        """,
    ),
    # A variance below zero comes of rounding and counts as zero.
    Rule(
        "rmsprop_centered",
        slots=("rms", "mg", "momentum"),
        scalars=("lr", "mu", "one_minus_decay", "epsilon"),
        body="""
            rms = flush(rms + (g * g - rms) * one_minus_decay)
            mg = flush(mg + (g - mg) * one_minus_decay)
            variance = rms - mg * mg
            variance = 0 if variance < 0 else variance
            momentum = flush(momentum * mu + g * lr / sqrt(variance + epsilon))
            w = w - momentum
        """,
    ),
    Rule(
        "adadelta",
        slots=("accum", "accum_update"),
        scalars=("lr", "rho", "one_minus_rho", "epsilon"),
        body="""
            accum = flush(accum * rho + g * g * one_minus_rho)
            update = sqrt(accum_update + epsilon) / sqrt(accum + epsilon) * g
            w = w - update * lr
            accum_update = flush(accum_update * rho + update * update * one_minus_rho)
        """,
    ),
    # threshold = T * l1, damping = l2 * T * lr, where T is the number of the step.
    Rule(
        "adagrad_da",
        slots=("gradient_accumulator", "gradient_squared_accumulator"),
        scalars=("lr", "threshold", "damping"),
        body="""
            gradient_accumulator = gradient_accumulator + g
            gradient_squared_accumulator = gradient_squared_accumulator + g * g
            excess = fabs(gradient_accumulator) - threshold
            excess = 0 if excess < 0 else excess
            target = copysign(excess, gradient_accumulator) * lr
            w = -target / (damping + sqrt(gradient_squared_accumulator))
        """,
    ),
    # threshold = lr * l1, shrink = 1 + l2 * lr.
    Rule(
        "proximal_gradient_descent",
        slots=(),
        scalars=("lr", "threshold", "shrink"),
        body="""
            target = w - g * lr
            excess = fabs(target) - threshold
            excess = 0 if excess < 0 else excess
            w = copysign(excess, target) / shrink
        """,
    ),
    Rule(
        "proximal_adagrad",
        slots=("accumulator",),
        scalars=("lr", "l1", "l2"),
        body="""
            accumulator = accumulator + g * g
            rate = lr / sqrt(accumulator)
            target = w - g * rate
            excess = fabs(target) - rate * l1
            excess = 0 if excess < 0 else excess
            w = copysign(excess, target) / (1 + l2 * rate)
        """,
    ),
    # The sign of zero is zero, that of NaN is NaN.
    Rule(
        "lion",
        slots=("m",),
        scalars=("lr", "one_minus_beta1", "one_minus_beta2"),
        body="""
            direction = m + (g - m) * one_minus_beta1
            direction = copysign(1, direction) if fabs(direction) > 0 else direction
            w = w - direction * lr
            m = flush(m + (g - m) * one_minus_beta2)
        """,
    ),
    # In the relatives of Adam lr is the bias-corrected step, too.
    Rule(
        "adamax",
        slots=("m", "v"),
        scalars=("lr", "one_minus_beta1", "beta2", "epsilon"),
        body="""
            m = flush(m + (g - m) * one_minus_beta1)
            v = flush(fmax(v * beta2, fabs(g)))
            w = w - m / (v + epsilon) * lr
        """,
        untouched=Untouched(
            shrinking=(("m", "one_minus_beta1"), ("v", "beta2")),
            moving="m",
            over="v",
            root="identity",
            lr="lr",
            epsilon="epsilon",
        ),
    ),
    # Rows that a sparse gradient doesn't list keep their weights: TensorFlow's choice.
    Rule(
        "nadam",
        slots=("m", "v"),
        scalars=("lr", "beta1", "one_minus_beta1", "one_minus_beta2", "epsilon"),
        body="""
            m = flush(m + (g - m) * one_minus_beta1)
            v = flush(v + (g * g - v) * one_minus_beta2)
            w = w - (g * one_minus_beta1 + m * beta1) * lr / (sqrt(v) + epsilon)
        """,
        untouched=Untouched(shrinking=(("m", "one_minus_beta1"), ("v", "one_minus_beta2"))),
    ),
    Rule(
        "amsgrad",
        slots=("m", "v", "vhat"),
        scalars=("lr", "one_minus_beta1", "one_minus_beta2", "epsilon"),
        body="""
            m = flush(m + (g - m) * one_minus_beta1)
            v = flush(v + (g * g - v) * one_minus_beta2)
            vhat = fmax(vhat, v)
            w = w - m * lr / (sqrt(vhat) + epsilon)
        """,
        untouched=Untouched(
            shrinking=(("m", "one_minus_beta1"), ("v", "one_minus_beta2")),
            moving="m",
            over="vhat",
            lr="lr",
            epsilon="epsilon",
        ),
    ),
    Rule(
        "rowwise_adagrad",
        slots=("accumulator",),
        row_slots=("accumulator",),
        scalars=("lr", "epsilon"),
        reduction="row",
        sums=("squares",),
        first="""
            squares = g * g
        """,
        between="""
            accumulator = accumulator + squares / count
            rate = lr / (sqrt(accumulator) + epsilon)
        """,
        body="""
            w = w - g * rate
        """,
    ),
    # weight = sqrt(t + 1), where t is the number of the step.
    Rule(
        "rowwise_adagrad_weighted",
        slots=("accumulator",),
        row_slots=("accumulator",),
        scalars=("lr", "epsilon", "weight"),
        reduction="row",
        sums=("squares",),
        first="""
            squares = g * g
        """,
        between="""
            accumulator = accumulator + weight * squares / count
            rate = lr * weight / (pow(accumulator, 1 / 3) + epsilon)
        """,
        body="""
            w = w - g * rate
        """,
    ),
    # lr is corrected for the bias of m; correction2 = 1 - beta2**t.
    Rule(
        "partial_rowwise_adam",
        slots=("m", "v"),
        row_slots=("v",),
        scalars=("lr", "one_minus_beta1", "one_minus_beta2", "correction2", "epsilon"),
        reduction="row",
        sums=("squares",),
        first="""
            squares = g * g
        """,
        between="""
            v = flush(v + (squares / count - v) * one_minus_beta2)
            denominator = sqrt(v / correction2) + epsilon
        """,
        body="""
            m = flush(m + (g - m) * one_minus_beta1)
            w = w - m * lr / denominator
        """,
    ),
    # As ftrl; then a row is drawn to zero as a whole. group = the penalty on the row's norm.
    Rule(
        "group_ftrl",
        slots=("accum", "linear"),
        scalars=("inv_lr", "l1", "two_l2", "group"),
        reduction="row",
        sums=("squares",),
        first="""
            n = accum + g * g
            linear = linear + g - (sqrt(n) - sqrt(accum)) * inv_lr * w
            accum = n
            excess = fabs(linear) - l1
            excess = 0 if excess < 0 else excess
            squares = excess * excess
        """,
        between="""
            norm = sqrt(squares)
            limit = group * sqrt(count)
            left = 1 - limit / norm if norm > limit else 0
        """,
        body="""
            excess = fabs(linear) - l1
            quotient = sqrt(accum) * inv_lr + two_l2
            target = copysign(excess, linear) * left / quotient
            w = -target if (excess > 0) & (left > 0) & (quotient > 0) else 0
        """,
    ),
    # correction1 = 1 - beta1**t, correction2 = 1 - beta2**t; adapt is 0 where lr is to be taken as
    # it is.
    Rule(
        "lamb",
        slots=("m", "v"),
        scalars=(
            "lr",
            "one_minus_beta1",
            "one_minus_beta2",
            "correction1",
            "correction2",
            "epsilon",
            "weight_decay",
            "adapt",
        ),
        reduction="variable",
        sums=("weights", "steps"),
        first="""
            m = flush(m + (g - m) * one_minus_beta1)
            v = flush(v + (g * g - v) * one_minus_beta2)
            step = m / correction1 / (sqrt(v / correction2) + epsilon) + weight_decay * w
            weights = w * w
            steps = step * step
        """,
        between="""
            ratio = sqrt(weights) / sqrt(steps)
            rate = lr * ratio if (weights > 0) & (steps > 0) & (adapt > 0) else lr
        """,
        body="""
            step = m / correction1 / (sqrt(v / correction2) + epsilon) + weight_decay * w
            w = w - step * rate
        """,
    ),
    Rule(
        "lars",
        slots=("momentum",),
        scalars=("lr", "mu", "weight_decay", "eeta", "epsilon", "adapt"),
        reduction="variable",
        sums=("weights", "gradients"),
        first="""
            weights = w * w
            gradients = g * g
        """,
        between="""
            norm = sqrt(weights)
            ratio = eeta * norm / (sqrt(gradients) + weight_decay * norm + epsilon)
            rate = lr * ratio if (weights > 0) & (gradients > 0) & (adapt > 0) else lr
        """,
        body="""
            momentum = flush(momentum * mu + (g + weight_decay * w))
            w = w - momentum * rate
        """,
    ),
    Rule(
        "lars_nesterov",
        slots=("momentum",),
        scalars=("lr", "mu", "weight_decay", "eeta", "epsilon", "adapt"),
        reduction="variable",
        sums=("weights", "gradients"),
        first="""
            weights = w * w
            gradients = g * g
        """,
        between="""
            norm = sqrt(weights)
            ratio = eeta * norm / (sqrt(gradients) + weight_decay * norm + epsilon)
            rate = lr * ratio if (weights > 0) & (gradients > 0) & (adapt > 0) else lr
        """,
        body="""
            step = g + weight_decay * w
            momentum = flush(momentum * mu + step)
            w = w - (step * rate + momentum * mu * rate)
        """,
    ),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in _PAGE}
