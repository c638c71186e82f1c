"""The document: what a checkpoint says about its tensors, as JSON.

The names of tensors are for people and for other programs. What belongs where on the way back is
decided by the document: a slot by the optimizer, the name of the slot and the variable, because a
name such as ``table/Adam_2`` depends on the order in which a program has made its slots.
"""

from __future__ import annotations

import dataclasses
import json
import platform
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastopt._version import __version__
from fastopt.variable import Variable

FORMAT = 1


@dataclass
class OptimizerRecord:
    """One optimizer.

    Attributes
    ----------
    cls : str
        The name of its class.
    hyperparameters : dict
        As `describe` shows them.
    slots : dict of str to dict
        Name of the slot -> key of the variable -> tensor.
    non_slots : dict of str to str
        Name of the variable, as the rule knows it -> tensor.
    """

    cls: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    slots: dict[str, dict[str, str]] = field(default_factory=dict)
    non_slots: dict[str, str] = field(default_factory=dict)


@dataclass
class LossScaleRecord:
    """One loss scale: its class, the arguments of that, its variables, and a count."""

    cls: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    skipped_steps: int = 0


@dataclass
class BiasedRecord:
    """An average that began at 0: its tensor, and how much of it is not that 0."""

    tensor: str
    weight: float


@dataclass
class AverageRecord:
    """One moving average: key of the variable -> tensor; name of the function -> its average."""

    shadows: dict[str, str] = field(default_factory=dict)
    functions: dict[str, BiasedRecord] = field(default_factory=dict)


@dataclass
class SumRecord:
    """A sum of gradients: the dtype of its first term, and its tensors by the parts of a sum."""

    dtype: str
    tensors: dict[str, str] = field(default_factory=dict)


@dataclass
class CollectedRecord:
    """What has been collected for a step that is not done yet.

    Attributes
    ----------
    count : int
        How many gradients.
    step : int
        For which step.
    sums : dict of str to SumRecord
        Key of the variable -> the sum of its gradients; of an accumulator under its own key.
    numbers : dict of str to list of int
        What else there is to know.
    """

    count: int = 0
    step: int = 0
    sums: dict[str, SumRecord] = field(default_factory=dict)
    numbers: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class Document:
    """Everything there is to say about a checkpoint besides its tensors.

    Attributes
    ----------
    step : int or None
        The step at which it was saved.
    versions : dict
        Of the libraries that wrote it.
    variables : list of str
        Keys of the variables, which are the names of their tensors.
    debiased : dict of str to BiasedRecord
        What `assign_moving_average` keeps for variables, by their keys.
    optimizers, loss_scales, averages, accumulators : dict
        By their keys.
    collected : dict of str to CollectedRecord
        Of the optimizers that collect gradients, by their keys.
    extra : object
        What the caller wanted to keep.
    """

    step: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    debiased: dict[str, BiasedRecord] = field(default_factory=dict)
    optimizers: dict[str, OptimizerRecord] = field(default_factory=dict)
    loss_scales: dict[str, LossScaleRecord] = field(default_factory=dict)
    averages: dict[str, AverageRecord] = field(default_factory=dict)
    collected: dict[str, CollectedRecord] = field(default_factory=dict)
    accumulators: dict[str, CollectedRecord] = field(default_factory=dict)
    extra: Any = None

    def to_json(self) -> str:
        """Return the document as it is written."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)})


def versions() -> dict[str, str]:
    """Return the versions of what is writing."""
    import safetensors

    return {
        "fastopt": __version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "python": platform.python_version(),
    }


# ---------------------------------------------------------------------- reading


def document_of(text: str, path: str) -> Document:
    """Read a document.

    Raises
    ------
    ValueError
        If it is not one, or one of a later format.
    """
    try:
        raw = json.loads(text)
        if raw["format"] != FORMAT:
            raise ValueError(
                f"it has format {raw['format']!r}; this version of fastopt reads {FORMAT}"
            )
        return Document(
            step=raw["step"] if raw["step"] is None else _is(raw["step"], int),
            versions=_texts(raw["versions"]),
            variables=[_is(key, str) for key in _is(raw["variables"], list)],
            debiased=_biased(raw["debiased"]),
            optimizers={
                key: OptimizerRecord(
                    _is(record["cls"], str),
                    _is(record["hyperparameters"], dict),
                    {slot: _texts(named) for slot, named in record["slots"].items()},
                    _texts(record["non_slots"]),
                )
                for key, record in raw["optimizers"].items()
            },
            loss_scales={
                key: LossScaleRecord(
                    _is(record["cls"], str),
                    _is(record["hyperparameters"], dict),
                    _texts(record["variables"]),
                    _is(record["skipped_steps"], int),
                )
                for key, record in raw["loss_scales"].items()
            },
            averages={
                key: AverageRecord(_texts(record["shadows"]), _biased(record["functions"]))
                for key, record in raw["averages"].items()
            },
            collected=_collected(raw.get("collected", {})),
            accumulators=_collected(raw.get("accumulators", {})),
            extra=raw["extra"],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: its description of the checkpoint is damaged: {what}") from error


def _is(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} where a {kind.__name__} must be")
    return value


def _biased(value: Any) -> dict[str, BiasedRecord]:
    return {
        key: BiasedRecord(_is(record["tensor"], str), _is(record["weight"], float))
        for key, record in value.items()
    }


def _collected(value: Any) -> dict[str, CollectedRecord]:
    return {
        key: CollectedRecord(
            _is(record["count"], int),
            _is(record["step"], int),
            {
                owner: SumRecord(_is(one["dtype"], str), _texts(one["tensors"]))
                for owner, one in record["sums"].items()
            },
            {
                name: [_is(number, int) for number in _is(numbers, list)]
                for name, numbers in record["numbers"].items()
            },
        )
        for key, record in value.items()
    }


def _texts(value: Any) -> dict[str, str]:
    return {key: _is(text, str) for key, text in _is(value, dict).items()}


# ---------------------------------------------------------------------- what may be written


def describe(value: Any) -> Any:
    """Return what is written of a hyperparameter: itself, or a text that tells it from others."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Variable):  # its value is state, and saved with the variables
        return f"<Variable {value.name}>"
    if getattr(value, "shape", None) == () and not callable(value):
        return float(np.asarray(value))
    name = getattr(value, "__qualname__", None)
    return f"<callable {name}>" if name else repr(value)


def require_json(value: Any, what: str) -> None:
    """Check that a value comes back from JSON as it was.

    Raises
    ------
    TypeError
        If it doesn't; the message says which part.
    """
    if value is None or isinstance(value, bool | str):
        return
    if type(value) in (int, float):
        return
    if type(value) is list:
        for position, item in enumerate(value):
            require_json(item, f"{what}[{position}]")
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"{what} has the key {key!r}; keys must be strings")
            require_json(item, f"{what}[{key!r}]")
    else:
        raise TypeError(
            f"{what} must be None, a bool, int, float or str, or lists and dicts of them, got "
            f"{value!r} of type {type(value).__name__}"
        )
