"""Write the page of all update rules, ``docs/rules.md``, from the code.

Formula and papers are those of the docstrings, slots and kernels those of the classes. Run it after
a rule has changed; a test compares the page with the code, and its cells with what optimizers do.

    python docs/make_rules.py
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastopt as fo
from fastopt._kernels.rules import RULES
from fastopt.optimizers._kernel_optimizer import KernelOptimizer

PAGE = Path(__file__).with_name("rules.md")

# What the rule is called elsewhere; "tf" is TensorFlow v1 with its contributed classes.
PEERS = {
    "GradientDescentOptimizer": "tf `GradientDescentOptimizer`, torch `SGD`, optax `sgd`",
    "MomentumOptimizer": "tf `MomentumOptimizer`, torch `SGD(momentum=)`",
    "AdagradOptimizer": "tf `AdagradOptimizer`, torch `Adagrad(eps=0)`, optax `adagrad(eps=0)`",
    "AdagradDAOptimizer": "tf `AdagradDAOptimizer`",
    "AdadeltaOptimizer": "tf `AdadeltaOptimizer`, torch `Adadelta`, optax `adadelta`",
    "AdamOptimizer": "tf `AdamOptimizer`; torch `Adam`, optax `adam` with another epsilon",
    "LazyAdamOptimizer": "tf `LazyAdamOptimizer`, torch `SparseAdam`",
    "AdamWOptimizer": "tf `AdamWOptimizer`; torch `AdamW`, optax `adamw` times the learning rate",
    "AdamaxOptimizer": "tf `AdaMaxOptimizer`; torch `Adamax`, optax `adamax` with another epsilon",
    "NadamOptimizer": "tf `NadamOptimizer`; torch `NAdam`, optax `nadam` are other rules",
    "RMSPropOptimizer": "tf `RMSPropOptimizer`; torch `RMSprop`, optax `rmsprop` from zeros",
    "FtrlOptimizer": "tf `FtrlOptimizer`",
    "ProximalGradientDescentOptimizer": "tf `ProximalGradientDescentOptimizer`",
    "ProximalAdagradOptimizer": "tf `ProximalAdagradOptimizer`",
    "LionOptimizer": "optax `lion`",
    "RowWiseAdagradOptimizer": "FBGEMM `EXACT_ROWWISE_ADAGRAD`",
    "PartialRowWiseAdamOptimizer": "FBGEMM `PARTIAL_ROWWISE_ADAM`",
    "LAMBOptimizer": "optax `lamb`",
    "LARSOptimizer": "tf `LARSOptimizer`; optax `lars` folds the rate in",
    "GroupFtrlOptimizer": "tfplus `SparseGroupFtrlOptimizer`",
    "AMSGradOptimizer": "torch `Adam(amsgrad=True)`, optax `amsgrad` with another epsilon",
}

INTRODUCTION = """\
# Update rules

<!-- Written by docs/make_rules.py from the code: change the docstrings and run it. -->

Every rule takes dense gradients and sparse ones, for variables of float16, bfloat16 (both with
float32 masters), float32 and float64. Every hyperparameter may be a number, a callable or a
schedule; `optimizer.configure(var, ...)` gives single variables their own; `fo.decouple` adds
decoupled weight decay to any rule that has none.

In the formulas `w` is the variable, `g` its gradient, `t` the number of the step, counted from 1;
`l1`, `l2` and `l21` are strengths of penalties; other names are slots or arguments, which `help` of
the class explains.

**Bytes** is what a parameter of float32 costs, its slots included; D is the number of columns of a
table. **Sparse gradient** says which rows change; repeated rows are summed first unless it says
otherwise.

"""


def optimizers() -> list[type[KernelOptimizer]]:
    """List the public optimizers by name."""
    found = {getattr(fo, name) for name in fo.__all__}
    classes = [c for c in found if isinstance(c, type) and issubclass(c, KernelOptimizer)]
    return sorted(classes, key=lambda cls: cls.__name__.lower())


def example(cls: type[KernelOptimizer], **kwargs: Any) -> KernelOptimizer:
    """Make an optimizer with some value for each argument that has no default."""
    required = {
        name: fo.Variable(0, dtype="int64", trainable=False) if name == "global_step" else 0.5
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is inspect.Parameter.empty
    }
    return cls(**{**required, **kwargs})


def variants(cls: type[KernelOptimizer]) -> Iterator[tuple[str, KernelOptimizer]]:
    """Yield a name and an optimizer for each set of slots that a class has."""
    yield "", example(cls)
    if "centered" in cls._constraints:
        yield "centered", example(cls, centered=True)
    if "amsgrad" in cls._constraints:
        yield "amsgrad", example(cls, amsgrad=True)


def slots(optimizer: KernelOptimizer) -> str:
    """Name the slots of an optimizer."""
    names = [
        f"`{slot.name}`" + (" (a row)" if slot.per_row else "") for slot in optimizer._slot_table
    ]
    return ", ".join(names) or "none"


def bytes_of(optimizer: KernelOptimizer) -> str:
    """Say what a parameter of float32 costs."""
    rows = sum(slot.per_row for slot in optimizer._slot_table)
    whole = 4 * (1 + len(optimizer._slot_table) - rows)
    return f"{whole} + {4 * rows}/D" if rows else str(whole)


def sparse(optimizer: KernelOptimizer) -> str:
    """Say which rows a sparse gradient changes."""
    rule = RULES[optimizer._rule_name]
    if rule.reduction == "variable":
        return "all rows, as the dense gradient that it stands for"
    if rule.untouched is not None and rule.untouched.moving is None and rule.untouched.shrinking:
        return "listed rows; averages fade in all"
    if optimizer._untouched != "skip":
        return "all rows, as the dense gradient that it stands for"
    if rule.duplicates == "sequential":
        return "listed rows, repeated ones one after the other"
    return "listed rows"


def formula(cls: type[KernelOptimizer]) -> str:
    """Return the formulas of a docstring, its literal blocks before the parameters.

    Those of the base class if it has none.
    """
    text = inspect.cleandoc(cls.__doc__ or "").partition("\nParameters\n")[0]
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", text + "\n")
    base = cls.__mro__[1]
    if not blocks and issubclass(base, KernelOptimizer):
        return formula(base)
    return "\n\n".join(textwrap.dedent(block).strip("\n") for block in blocks)


def papers(cls: type[KernelOptimizer]) -> list[str]:
    """Return the references of a docstring, those of the base class if it has none."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("\nReferences\n")[2]
    text = text.partition("\nExamples\n")[0]
    found = [" ".join(part.split()) for part in re.split(r"\.\. \[\d\] ", text)[1:]]
    base = cls.__mro__[1]
    return found or (papers(base) if issubclass(base, KernelOptimizer) else [])


def page() -> str:
    """Return the text of the page."""
    head = "| Optimizer | Slots | Bytes | Sparse gradient | Elsewhere |"
    lines = [head, "| --- | --- | --- | --- | --- |"]
    for cls in optimizers():
        for variant, optimizer in variants(cls):
            name = f"[`{cls.__name__}`](#{cls.__name__.lower()})"
            cells = [
                f"{name}, {variant}" if variant else name,
                slots(optimizer),
                bytes_of(optimizer),
                sparse(optimizer),
                "" if variant else PEERS[cls.__name__],
            ]
            lines.append(f"| {' | '.join(cells)} |")
    parts = [INTRODUCTION + "\n".join(lines)]
    for cls in optimizers():
        first = inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]
        first = re.sub(r" ?\[(\d)\]_", "", first)
        part = f"## {cls.__name__}\n\n{first}\n"
        if formula(cls):
            part += f"\n```text\n{formula(cls)}\n```\n"
        part += "".join(f"\n- {paper}" for paper in papers(cls))
        parts.append(part.rstrip())
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
