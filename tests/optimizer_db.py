"""The registry of optimizers: one record each, which drives all general tests.

A new optimizer gets one record here. Its bad hyperparameters come from the table of constraints of
its class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import fastopt as fo
from fastopt._validate import Real
from fastopt.optimizers._kernel_optimizer import KernelOptimizer


@dataclass(frozen=True)
class Record:
    """What the general tests know about one optimizer.

    Attributes
    ----------
    cls : type
        The class.
    required : dict
        The arguments without a default.
    variants : dict
        Name -> arguments that are worth a run of every general test.
    golden : tuple of str
        The golden files, without ".npz".
    parabola, rosenbrock : (dict, int)
        Arguments and steps that come to the minimum.
    slots : tuple of str
        Names of the slots, in the order of their creation.
    other_rows : bool
        Whether rows that a sparse gradient doesn't list move as by a gradient of zero.
    fading : tuple of str
        Slots that shrink in rows that a sparse gradient doesn't list, if those rows don't move.
    row_slots : tuple of str
        Those of the slots that have one number a row.
    whole : bool
        Whether an update depends on the whole of its variable at once.
    duplicates : str
        "sum" or "sequential".
    counts_calls : bool
        Whether a step depends on how many calls came before it.
    name : str
        The name of the record, where a class has more than one.
    golden_arguments : dict
        Golden file -> what our class needs besides to be the rule of the file.
    """

    cls: type[KernelOptimizer]
    required: dict[str, Any]
    variants: dict[str, dict[str, Any]]
    golden: tuple[str, ...]
    parabola: tuple[dict[str, Any], int]
    rosenbrock: tuple[dict[str, Any], int]
    slots: tuple[str, ...] = ()
    other_rows: bool = False
    fading: tuple[str, ...] = ()
    row_slots: tuple[str, ...] = ()
    whole: bool = False
    duplicates: str = "sum"
    counts_calls: bool = False
    name: str = ""
    golden_arguments: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.name or self.cls.__name__.removesuffix("Optimizer")

    def make(self, **kwargs: Any) -> Any:
        """Make an optimizer, with the required arguments unless others are given."""
        return self.cls(**{**self.required, **kwargs})


# The counter that AdagradDA reads. Tests don't pass it on, so it stays where it is.
STEP = fo.Variable(np.int64(0), trainable=False, name="step_of_adagrad_da")

RECORDS = (
    Record(
        cls=fo.GradientDescentOptimizer,
        required={"learning_rate": 0.1},
        variants={"default": {}, "ascent": {"learning_rate": -0.01}},
        golden=("gradient_descent__lr01", "gradient_descent__lr3"),
        parabola=({"learning_rate": 0.1}, 300),
        rosenbrock=({"learning_rate": 2e-3}, 30000),
        duplicates="sequential",
    ),
    Record(
        cls=fo.MomentumOptimizer,
        required={"learning_rate": 0.1, "momentum": 0.9},
        variants={"plain": {}, "nesterov": {"use_nesterov": True}},
        golden=(
            "momentum__default",
            "momentum__nesterov",
            "momentum__nesterov_lr2",
            "momentum__zero",
            "momentum__float64_hyperparameters",
        ),
        parabola=({"learning_rate": 0.02, "momentum": 0.9}, 500),
        rosenbrock=({"learning_rate": 5e-4, "momentum": 0.9}, 15000),
        slots=("momentum",),
    ),
    Record(
        cls=fo.AdagradOptimizer,
        required={"learning_rate": 0.1},
        variants={"default": {}, "large_start": {"initial_accumulator_value": 10.0}},
        golden=("adagrad__default", "adagrad__init10", "adagrad__lr3_small_init"),
        parabola=({"learning_rate": 1.0}, 500),
        rosenbrock=({"learning_rate": 1.0}, 20000),
        slots=("accumulator",),
    ),
    Record(
        cls=fo.AdamOptimizer,
        required={},
        variants={
            "default": {},
            "betas_0": {"beta1": 0.0, "beta2": 0.0, "epsilon": 0.1},
            "fast": {"learning_rate": 0.05, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-4},
        },
        golden=(
            "adam__default",
            "adam__beta1_0",
            "adam__beta2_0",
            "adam__betas_0",
            "adam__eps1",
            "adam__fast_betas",
            "adam__lr01_eps1e-3",
            "adam__float64_hyperparameters",
        ),
        parabola=({"learning_rate": 0.1}, 1000),
        rosenbrock=({"learning_rate": 0.02}, 15000),
        slots=("m", "v"),
        counts_calls=True,
        other_rows=True,
    ),
    Record(
        cls=fo.AdamOptimizer,
        required={"amsgrad": True},
        variants={"amsgrad": {}, "amsgrad_fast": {"learning_rate": 0.05, "beta2": 0.9}},
        golden=("keras_adam__amsgrad",),
        parabola=({"learning_rate": 0.1}, 1000),
        rosenbrock=({"learning_rate": 0.02}, 15000),
        slots=("m", "v", "vhat"),
        counts_calls=True,
        other_rows=True,
        name="Adam-amsgrad",
    ),
    Record(
        cls=fo.LazyAdamOptimizer,
        required={},
        variants={"default": {}},
        golden=("lazy_adam__lr01",),
        parabola=({"learning_rate": 0.1}, 1000),
        rosenbrock=({"learning_rate": 0.02}, 15000),
        slots=("m", "v"),
        counts_calls=True,
    ),
    Record(
        cls=fo.FtrlOptimizer,
        required={"learning_rate": 0.5},
        variants={
            "default": {},
            "all": {
                "learning_rate_power": -0.7,
                "l1_regularization_strength": 0.01,
                "l2_regularization_strength": 0.02,
                "l2_shrinkage_regularization_strength": 0.03,
                "beta": 0.1,
            },
        },
        golden=(
            "ftrl__default",
            "ftrl__all",
            "ftrl__beta",
            "ftrl__init0",
            "ftrl__init0_l1",
            "ftrl__l1",
            "ftrl__l1_l2",
            "ftrl__l1_l2_shrinkage",
            "ftrl__l2",
            "ftrl__power-0.3",
            "ftrl__power-1_shrinkage",
            "ftrl__power0",
            "ftrl__shrinkage",
        ),
        parabola=({"learning_rate": 1.0}, 500),
        rosenbrock=({"learning_rate": 1.0}, 20000),
        slots=("accum", "linear"),
    ),
    Record(
        cls=fo.RMSPropOptimizer,
        required={"learning_rate": 0.1},
        variants={"default": {}, "momentum": {"momentum": 0.9, "epsilon": 0.01}},
        golden=(
            "rmsprop__default",
            "rmsprop__decay0_eps1",
            "rmsprop__momentum",
        ),
        parabola=({"learning_rate": 0.1, "epsilon": 1.0}, 500),
        rosenbrock=({"learning_rate": 2e-3}, 15000),
        slots=("rms", "momentum"),
    ),
    Record(
        cls=fo.RMSPropOptimizer,
        required={"learning_rate": 0.1, "centered": True},
        variants={"centered": {"momentum": 0.5}},
        golden=(
            "rmsprop__centered",
            "rmsprop__centered_momentum",
            "rmsprop__float64_hyperparameters",
        ),
        parabola=({"learning_rate": 0.1, "epsilon": 1.0}, 500),
        rosenbrock=({"learning_rate": 2e-3, "epsilon": 1.0}, 30000),
        slots=("rms", "mg", "momentum"),
        name="RMSProp-centered",
    ),
    Record(
        cls=fo.AdadeltaOptimizer,
        required={},
        variants={"default": {}, "paper": {"learning_rate": 1.0, "epsilon": 1e-6}},
        golden=(
            "adadelta__default",
            "adadelta__eps1_rho0",
            "adadelta__lr1",
            "adadelta__rho1",
        ),
        parabola=({"learning_rate": 1.0, "epsilon": 1e-3}, 1000),
        rosenbrock=({"learning_rate": 0.3, "rho": 0.999, "epsilon": 1e-6}, 25000),
        slots=("accum", "accum_update"),
    ),
    Record(
        cls=fo.AdagradDAOptimizer,
        required={"learning_rate": 0.1, "global_step": STEP},
        variants={
            "default": {},
            "penalties": {"l1_regularization_strength": 0.1, "l2_regularization_strength": 0.2},
        },
        golden=(
            "adagrad_da__plain",
            "adagrad_da__l1",
            "adagrad_da__l2",
            "adagrad_da__l1_l2",
        ),
        parabola=({"learning_rate": 1.0}, 2000),
        rosenbrock=({"learning_rate": 1.0}, 20000),
        slots=("gradient_accumulator", "gradient_squared_accumulator"),
    ),
    Record(
        cls=fo.ProximalGradientDescentOptimizer,
        required={"learning_rate": 0.1},
        variants={
            "default": {},
            "penalties": {"l1_regularization_strength": 0.1, "l2_regularization_strength": 0.2},
        },
        golden=(
            "proximal_gradient_descent__plain",
            "proximal_gradient_descent__l1",
            "proximal_gradient_descent__l2",
            "proximal_gradient_descent__l1_l2",
        ),
        parabola=({"learning_rate": 0.1}, 300),
        rosenbrock=({"learning_rate": 2e-3}, 30000),
    ),
    Record(
        cls=fo.ProximalAdagradOptimizer,
        required={"learning_rate": 0.1},
        variants={
            "default": {},
            "penalties": {"l1_regularization_strength": 0.1, "l2_regularization_strength": 0.2},
        },
        golden=(
            "proximal_adagrad__plain",
            "proximal_adagrad__l1",
            "proximal_adagrad__l2",
            "proximal_adagrad__l1_l2",
        ),
        parabola=({"learning_rate": 1.0}, 500),
        rosenbrock=({"learning_rate": 1.0}, 20000),
        slots=("accumulator",),
    ),
    Record(
        cls=fo.AdamaxOptimizer,
        required={},
        variants={"default": {}},
        golden=("keras_adamax__default",),
        parabola=({"learning_rate": 0.1}, 1000),
        rosenbrock=({"learning_rate": 0.02}, 15000),
        slots=("m", "v"),
        counts_calls=True,
    ),
    Record(
        cls=fo.NadamOptimizer,
        required={},
        variants={"default": {}, "fast": {"learning_rate": 0.05, "beta1": 0.5, "beta2": 0.9}},
        golden=("nadam_contrib__default",),
        parabola=({"learning_rate": 0.1}, 1000),
        rosenbrock=({"learning_rate": 0.02}, 15000),
        slots=("m", "v"),
        counts_calls=True,
        fading=("m", "v"),
    ),
    Record(
        cls=fo.LionOptimizer,
        required={},
        variants={"default": {}, "momentum": {"learning_rate": 0.1, "beta1": 0.5, "beta2": 0.5}},
        golden=("optax_lion",),
        parabola=({"learning_rate": 0.001}, 4000),
        rosenbrock=({"learning_rate": 5e-4}, 20000),
        slots=("m",),
    ),
    Record(
        cls=fo.AdamWOptimizer,
        required={"weight_decay": 0.0},
        variants={
            "default": {},
            "decay": {"weight_decay": 0.01},
            "rate": {"weight_decay": 0.1, "times_learning_rate": True},
        },
        golden=("adamw_contrib__wd01", "keras3_adamw__default"),
        golden_arguments={
            "adamw_contrib__wd01": {"listed_rows_only": True},
            "keras3_adamw__default": {"times_learning_rate": True},
        },
        parabola=({"learning_rate": 0.1}, 1000),
        rosenbrock=({"learning_rate": 0.02}, 15000),
        slots=("m", "v"),
        counts_calls=True,
        other_rows=True,
    ),
    Record(
        cls=fo.RowWiseAdagradOptimizer,
        required={"learning_rate": 0.1},
        variants={"default": {}, "large_start": {"initial_accumulator_value": 10.0}},
        golden=("fbgemm_rowwise_adagrad",),
        parabola=({"learning_rate": 1.0}, 500),
        rosenbrock=({"learning_rate": 1.0}, 20000),
        slots=("accumulator",),
        row_slots=("accumulator",),
    ),
    Record(
        cls=fo.RowWiseAdagradOptimizer,
        required={"learning_rate": 0.1, "weighted": True},
        variants={"weighted": {}},
        golden=(),
        parabola=({"learning_rate": 0.1}, 1000),
        rosenbrock=({"learning_rate": 0.003, "initial_accumulator_value": 1.0}, 20000),
        slots=("accumulator",),
        row_slots=("accumulator",),
        counts_calls=True,
        name="RowWiseAdagrad-weighted",
    ),
    Record(
        cls=fo.PartialRowWiseAdamOptimizer,
        required={},
        variants={"default": {}, "fast": {"learning_rate": 0.05, "beta1": 0.5, "beta2": 0.9}},
        golden=(),
        parabola=({"learning_rate": 0.1}, 1000),
        rosenbrock=({"learning_rate": 0.02}, 15000),
        slots=("m", "v"),
        row_slots=("v",),
        counts_calls=True,
    ),
    Record(
        cls=fo.LAMBOptimizer,
        required={},
        variants={"default": {}, "decay": {"weight_decay": 0.1}},
        golden=("optax_lamb",),
        parabola=({"learning_rate": 0.1, "layer_adaptation": False}, 1000),
        rosenbrock=({"learning_rate": 0.002}, 20000),
        slots=("m", "v"),
        counts_calls=True,
        other_rows=True,
        whole=True,
    ),
    Record(
        cls=fo.LARSOptimizer,
        required={"learning_rate": 0.1, "weight_decay": 0.0},
        variants={
            "default": {},
            "decay": {"weight_decay": 0.1, "eeta": 0.1},
            "nesterov": {"use_nesterov": True, "eeta": 0.1},
        },
        golden=("optax_lars",),
        parabola=({"learning_rate": 0.02, "layer_adaptation": False}, 500),
        rosenbrock=(
            {"learning_rate": 5e-4, "layer_adaptation": False},
            15000,
        ),
        slots=("momentum",),
        other_rows=True,
        whole=True,
    ),
    Record(
        cls=fo.GroupFtrlOptimizer,
        required={"learning_rate": 0.5},
        variants={
            "default": {},
            "penalties": {
                "l1_regularization_strength": 0.01,
                "l2_regularization_strength": 0.02,
                "l21_regularization_strength": 0.1,
            },
        },
        golden=("ftrl__default", "ftrl__l1_l2", "ftrl__init0"),
        parabola=({"learning_rate": 1.0}, 500),
        rosenbrock=({"learning_rate": 1.0}, 20000),
        slots=("accum", "linear"),
    ),
)

BY_ID = {record.id: record for record in RECORDS}


@pytest.fixture(autouse=True)
def fresh_graph() -> Iterator[Any]:
    """Give a test a default graph of its own, so that names are what it says."""
    with fo.Graph().as_default() as graph:
        yield graph


def every_record() -> Any:
    """Parametrize a test over all optimizers."""
    return pytest.mark.parametrize("record", [pytest.param(r, id=r.id) for r in RECORDS])


def every_variant() -> Any:
    """Parametrize a test over all optimizers and their variants."""
    return pytest.mark.parametrize(
        ("record", "kwargs"),
        [
            pytest.param(record, {**record.required, **kwargs}, id=f"{record.id}-{name}")
            for record in RECORDS
            for name, kwargs in record.variants.items()
        ],
    )


def bad_arguments() -> Iterator[Any]:
    """Yield (record, argument, bad value, exception) for each hyperparameter."""
    for record in RECORDS:
        for name, constraint in record.cls._constraints.items():
            for number, (value, error) in enumerate(constraint.bad_values()):
                yield pytest.param(record, name, value, error, id=f"{record.id}-{name}-{number}")


def bad_numbers() -> Iterator[Any]:
    """Yield (record, argument, bad number) for each hyperparameter that may vary."""
    for record in RECORDS:
        for name, constraint in record.cls._constraints.items():
            if isinstance(constraint, Real) and not constraint.fixed:
                for value in (float("nan"), float("inf"), *constraint.out_of_bounds()):
                    yield pytest.param(record, name, value, id=f"{record.id}-{name}-{value:g}")


def state_of(optimizer: Any, *variables: Any) -> dict[str, bytes]:
    """Return everything a step may change, bit by bit."""
    state = {var.name: var.numpy().tobytes() for var in variables}
    state.update((var.name, var.numpy().tobytes()) for var in optimizer.variables())
    state["slot names"] = repr(optimizer.get_slot_names()).encode()
    return state


def slices_of(dense: np.ndarray[Any, Any]) -> Any:
    """Return slices that list every row of an array once."""
    return fo.IndexedSlices(dense, np.arange(dense.shape[0]), dense.shape)
