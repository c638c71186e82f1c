"""Schedules: TensorFlow's numbers, the two faces, steps of every kind, errors."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import json
import math
import pickle
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastopt as fo
from fastopt import schedules
from fastopt._validate import Flag
from fastopt.schedules.base import power

GOLDEN = np.load(Path(__file__).parent / "golden" / "schedules.npz")
CASES: dict[str, dict[str, Any]] = json.loads(str(GOLDEN["meta"]))["cases"]

# One valid call of each class; the general tests run over all of them.
EXAMPLES: dict[str, dict[str, Any]] = {
    "ExponentialDecay": {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
    "NaturalExponentialDecay": {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
    "InverseTimeDecay": {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
    "PolynomialDecay": {"learning_rate": 0.1, "decay_steps": 10},
    "PiecewiseConstantDecay": {"boundaries": [3, 7], "values": [1.0, 0.5, 0.1]},
    "CosineDecay": {"learning_rate": 0.1, "decay_steps": 10},
    "CosineDecayRestarts": {"learning_rate": 0.1, "first_decay_steps": 10},
    "LinearCosineDecay": {"learning_rate": 0.1, "decay_steps": 10},
    "NoisyLinearCosineDecay": {"learning_rate": 0.1, "decay_steps": 10, "seed": 7},
    "LinearWarmup": {"learning_rate": 0.1, "warmup_steps": 10},
    "OneCycle": {"max_learning_rate": 0.1, "total_steps": 10},
}
DURATIONS = {
    "ExponentialDecay": "decay_steps",
    "NaturalExponentialDecay": "decay_steps",
    "InverseTimeDecay": "decay_steps",
    "PolynomialDecay": "decay_steps",
    "CosineDecay": "decay_steps",
    "CosineDecayRestarts": "first_decay_steps",
    "LinearCosineDecay": "decay_steps",
    "NoisyLinearCosineDecay": "decay_steps",
    "LinearWarmup": "warmup_steps",
    "OneCycle": "total_steps",
}


def make(name: str, **changes: Any) -> schedules.Schedule:
    return getattr(schedules, name)(**(EXAMPLES[name] | changes))


class Counter:
    """A step that is read through `_read`, as a `Variable` is."""

    def __init__(self, value: int) -> None:
        self.value = np.array(value, dtype=np.int64)

    def _read(self) -> np.ndarray:
        return self.value


def test_every_class_has_an_example() -> None:
    classes = {
        name
        for name in schedules.__all__
        if isinstance(getattr(schedules, name), type) and name != "Schedule"
    }
    assert classes == set(EXAMPLES)


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    arguments = dict(CASES[case])
    function = getattr(schedules, arguments.pop("function"))
    first = [arguments.pop("learning_rate")] if "learning_rate" in arguments else []
    for step, expected in zip(GOLDEN[f"{case}/steps"], GOLDEN[f"{case}/lr"], strict=True):
        # Theirs is float32 throughout: some 10 roundings of the rate or of a cosine near its zero.
        assert function(*first, int(step), **arguments)() == pytest.approx(
            float(expected), rel=1e-6, abs=2e-8
        )


def test_exponential_decay_of_each_kind_of_step() -> None:
    """martin-gorner/tensorflow-mnist-tutorial#4, stickeritis/sticker PR#145: integer division."""
    kinds = [7, np.int64(7), np.int32(7), np.array(7), np.array([7]), 7.0, Counter(7), lambda: 7]
    for step in kinds:
        assert schedules.exponential_decay(0.1, step, 3, 0.5, staircase=True)() == 0.025
        smooth = schedules.exponential_decay(0.1, step, 3, 0.5)()
        assert smooth == pytest.approx(0.01984251, rel=1e-6)
        assert schedules.ExponentialDecay(0.1, 3, 0.5)(step) == smooth


def test_exponential_decay_after_a_long_run() -> None:
    """lisa-lab/pylearn2#479: OverflowError from the maths library."""
    assert schedules.exponential_decay(0.1, 2**40, 10, 0.5)() == 0.0
    assert schedules.exponential_decay(0.1, 2**40, 10, 2.0)() == math.inf
    assert schedules.natural_exp_decay(0.1, 2**40, 10, 0.5)() == 0.0
    assert schedules.natural_exp_decay(0.1, 2**40, 10, -0.5)() == math.inf
    assert schedules.exponential_decay(0.0, 2**40, 10, 2.0)() == 0.0


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("steps", [0, -5, math.nan, math.inf])
def test_duration_must_be_positive(name: str, steps: float) -> None:
    """keras-team/keras PR#18722, tensorflow/tensorflow#53284: rate silently 0, constant or NaN."""
    with pytest.raises(ValueError, match=f"{name}: {DURATIONS[name]} must be .* > 0|>= 2"):
        make(name, **{DURATIONS[name]: steps})


@pytest.mark.parametrize("function", [f for f in schedules.__all__ if f.islower()])
def test_functions_refuse_no_step(function: str) -> None:
    arguments = {"piecewise_constant": (None, [1], [1.0, 2.0])}.get(function, (0.1, None, 10, 1.5))
    with pytest.raises(ValueError, match="global_step is required"):
        getattr(schedules, function)(*arguments)


@pytest.mark.parametrize("name", EXAMPLES)
def test_bad_hyperparameters(name: str) -> None:
    for argument, constraint in getattr(schedules, name).constraints.items():
        bad = list(constraint.bad_values())
        assert bad
        for value, error in bad:
            with pytest.raises(error, match=argument):
                make(name, **{argument: value})
        if not isinstance(constraint, Flag):
            exact = make(name, **{argument: np.float32(getattr(make(name), argument))})
            assert type(getattr(exact, argument)) in (float, int)


@pytest.mark.parametrize("name", EXAMPLES)
def test_binding(name: str) -> None:
    schedule, step = make(name), Counter(0)
    with pytest.raises(TypeError, match=f"{name} is not bound to a step.*global_step"):
        schedule()
    bound = schedule.bind(step)
    assert bound == schedule and bound.global_step is step and schedule.global_step is None
    assert make(name, global_step=step)() == bound()
    for k in (0, 1, 5, 12, 10**6):
        step.value[...] = k
        assert bound() == schedule(k)
        assert isinstance(bound(), float)
    assert bound(3) == schedule(3)  # an explicit step wins
    with pytest.raises(ValueError, match="global_step is required"):
        schedule.bind(None)


@pytest.mark.parametrize("name", EXAMPLES)
def test_immutable_copied_and_pickled(name: str) -> None:
    """online-ml/river PR#1920: a copied optimizer held a wrapped rate and failed."""
    step = Counter(4)
    schedule = make(name).bind(step)
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.global_step = 3  # type: ignore[misc]
    for other in (copy.copy(schedule), copy.deepcopy(schedule), copy.deepcopy([schedule])[0]):
        assert other.global_step is step  # a copy must not read a step that nobody advances
        assert other() == schedule()
    restored = pickle.loads(pickle.dumps(make(name)))
    assert restored == make(name) and restored(4) == schedule()
    assert hash(restored) == hash(make(name))
    namespace = vars(schedules).copy()
    assert eval(repr(make(name)), namespace) == make(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_bad_steps(name: str) -> None:
    schedule = make(name)
    for step in (math.nan, math.inf, -math.inf, np.float32("nan")):
        with pytest.raises(ValueError, match="the step must be finite"):
            schedule(step)
    for step in ("1", True, np.True_, [1, 2], np.zeros(0), 1j, lambda: None, object()):
        with pytest.raises(TypeError, match="the step must be a single real number"):
            schedule(step)
    if name != "PiecewiseConstantDecay":
        with pytest.raises(ValueError, match="the step must be >= 0, got -1"):
            schedule(-1)


@pytest.mark.parametrize("name", EXAMPLES)
@given(step=st.one_of(st.integers(0, 2**63), st.floats(0, 1e300)))
def test_always_a_number(name: str, step: float) -> None:
    value = make(name)(step)
    assert isinstance(value, float) and math.isfinite(value)


def test_own_schedule() -> None:
    class Halving(schedules.Schedule):
        def value_at(self, step: float) -> float:
            return 0.5**step

    step = Counter(1)
    bound = Halving().bind(step)
    assert Halving()(3) == 0.125 and bound() == 0.5
    with pytest.raises(NotImplementedError, match="Schedule must define value_at"):
        schedules.Schedule()(1)


def test_polynomial_cycle() -> None:
    schedule = schedules.PolynomialDecay(0.05, 10, end_learning_rate=0.001, cycle=True)
    assert schedule(0) == 0.05
    assert schedule(5) == pytest.approx((0.05 - 0.001) * 0.5 + 0.001)
    assert schedule(10) == pytest.approx(0.001)
    assert schedule(15) == pytest.approx((0.05 - 0.001) * 0.25 + 0.001)
    assert schedule(20) == pytest.approx(0.001)
    # a fractional power needs a base that rounding cannot push below 0
    rooted = schedules.PolynomialDecay(1.0, 0.1, end_learning_rate=0.0, power=0.5, cycle=True)
    assert all(0.0 <= rooted(k / 10) <= 1.0 for k in range(2000))


def test_piecewise_edges() -> None:
    values = [1.0, 0.1, 0.01, 0.001]
    steps = [-999, 100, 105, 110, 120, 999]
    expected = [1.0, 1.0, 0.1, 0.1, 0.01, 0.001]
    for boundaries in ([100, 110, 120], np.array([100, 110, 120], np.int32)):
        got = [schedules.piecewise_constant(np.int64(s), boundaries, values)() for s in steps]
        assert got == expected
    # integers are compared as integers, beyond what a float can tell apart
    exact = schedules.PiecewiseConstantDecay([2**60], [1.0, 2.0])
    assert (exact(2**60), exact(2**60 + 1)) == (1.0, 2.0)
    assert schedules.piecewise_constant(5, [], [0.5])() == 0.5


def test_piecewise_errors() -> None:
    with pytest.raises(ValueError, match=r"boundaries\[0\] must be an integer as the step is"):
        schedules.piecewise_constant(5, [1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"boundaries\[1\] must be floating as the step is"):
        schedules.piecewise_constant(5.0, [1.0, 2], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"values\[1\] must be floating as values\[0\] is, got 2"):
        schedules.piecewise_constant(5, [1, 2], [1.0, 2, 3])
    with pytest.raises(ValueError, match="2 values and 2 boundaries"):
        schedules.piecewise_constant(5, [1, 2], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"must ascend, got boundaries\[1\] = 2 after 2"):
        schedules.PiecewiseConstantDecay([2, 2], [1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match=r"boundaries\[1\]"):
        schedules.PiecewiseConstantDecay([2, "3"], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"values\[2\]"):
        schedules.PiecewiseConstantDecay([2, 3], [1.0, 2.0, math.nan])
    assert schedules.PiecewiseConstantDecay([1.5, 2], [1, 2.0, 3])(2) == 2.0


@pytest.mark.parametrize("t_mul", [1.0, 1.0 + 1e-9, 1.1, 2.0, 3.0, 10.0])
def test_restarts_at_exact_ends_of_periods(t_mul: float) -> None:
    """The restart must not depend on the rounding of a logarithm."""
    schedule = schedules.CosineDecayRestarts(1.0, 1000, t_mul=t_mul, m_mul=0.5)
    start, length = 0.0, 1000.0
    for period in range(12):
        assert schedule(start) == pytest.approx(0.5**period, rel=1e-12)
        assert schedule(start + length / 2) == pytest.approx(0.5**period / 2, rel=1e-9)
        assert schedule(start + length * (1 - 1e-6)) < 1e-9
        start, length = start + length, length * t_mul


def test_restarts_with_huge_growth() -> None:
    schedule = schedules.CosineDecayRestarts(1.0, 1, t_mul=1e300, m_mul=0.5)
    assert schedule(0.5) == pytest.approx(0.5)
    assert schedule(2**62) == pytest.approx(0.5)


def test_noise_is_a_function_of_seed_and_step() -> None:
    schedule = schedules.NoisyLinearCosineDecay(1.0, 1000, seed=3)
    values = [schedule(step) for step in range(100)]
    assert values == [schedule(step) for step in range(100)]
    other = schedules.NoisyLinearCosineDecay(1.0, 1000, seed=4)
    assert not set(values) & {other(step) for step in range(100)}
    unseeded = schedules.NoisyLinearCosineDecay(1.0, 1000)
    assert unseeded(5) == unseeded(5)
    assert unseeded.seed != schedules.NoisyLinearCosineDecay(1.0, 1000).seed
    assert unseeded.bind(5)() == unseeded(5)
    for bad, error in ((-1, ValueError), (2**128, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="seed must be"):
            schedules.NoisyLinearCosineDecay(1.0, 1000, seed=bad)


def test_noise_has_the_variance_of_the_formula() -> None:
    clean = schedules.LinearCosineDecay(1.0, 10**9, beta=0.0)
    noisy = schedules.NoisyLinearCosineDecay(
        1.0, 10**9, initial_variance=4.0, variance_decay=0.5, beta=0.0, seed=0
    )
    steps = np.arange(2000)  # the cosine is 1 to within 1e-11 here
    noise = np.array([noisy(int(s)) - clean(int(s)) for s in steps])
    standard = noise / np.sqrt(4.0 / np.sqrt(1.0 + steps))
    # five standard errors of the mean and of the variance of 2000 normal draws
    assert abs(standard.mean()) < 5 / math.sqrt(2000)
    assert abs(standard.var() - 1.0) < 5 * math.sqrt(2.0 / 2000)
    assert abs(np.corrcoef(standard[:-1], standard[1:])[0, 1]) < 5 / math.sqrt(2000)


def test_warmup() -> None:
    constant = schedules.LinearWarmup(0.5, 10, start_learning_rate=0.1)
    assert [constant(s) for s in (0, 5, 10, 99)] == pytest.approx([0.1, 0.3, 0.5, 0.5])
    after = schedules.ExponentialDecay(0.5, 1, 0.5)
    composed = schedules.LinearWarmup(after, 4)
    assert [composed(s) for s in (0, 1, 4, 5, 6)] == [0.0, 0.125, 0.5, 0.25, 0.125]
    with pytest.raises(ValueError, match="not bound to a step"):
        schedules.LinearWarmup(after.bind(3), 4)
    with pytest.raises(TypeError, match="LinearWarmup: learning_rate must be"):
        schedules.LinearWarmup("0.1", 4)  # type: ignore[arg-type]


# torch.optim.lr_scheduler.OneCycleLR(max_lr=1.0, total_steps=10, **arguments), PyTorch 2.13
ONE_CYCLE = [
    (
        {},
        "0.04 0.52 1.0 0.950484632013 0.81174565395 0.611262021936 0.388741978064 0.18825834605 "
        "0.0495193679865 4e-06",
    ),
    (
        {"three_phase": True},
        "0.04 0.52 1.0 0.52 0.04 0.0361807218535 0.0261817218535 0.0138222781465 "
        "0.00382327814649 4e-06",
    ),
    (
        {
            "anneal_strategy": "linear",
            "div_factor": 10.0,
            "final_div_factor": 100.0,
            "pct_start": 0.45,
        },
        "0.1 0.357142857143 0.614285714286 0.871428571429 0.909181818182 0.727545454545 "
        "0.545909090909 0.364272727273 0.182636363636 0.001",
    ),
]


@pytest.mark.parametrize(("arguments", "expected"), ONE_CYCLE)
def test_one_cycle(arguments: dict[str, Any], expected: str) -> None:
    schedule = schedules.OneCycle(1.0, 10, **arguments)
    numbers = [float(text) for text in expected.split()]
    assert [schedule(step) for step in range(10)] == pytest.approx(numbers, rel=1e-11)
    assert schedule(11) == schedule(9)


def test_one_cycle_errors() -> None:
    with pytest.raises(ValueError, match="anneal_strategy must be 'cos' or 'linear', got 'sine'"):
        make("OneCycle", anneal_strategy="sine")
    with pytest.raises(ValueError, match="total_steps must be whole, got 10.5"):
        make("OneCycle", total_steps=10.5)
    with pytest.raises(ValueError, match="pct_start must be < 0.5 with three_phase"):
        make("OneCycle", pct_start=0.5, three_phase=True)
    with pytest.raises(ValueError, match=r"pct_start \* total_steps must be > 1"):
        make("OneCycle", pct_start=0.1)


def test_one_cycle_of_a_momentum() -> None:
    schedule = schedules.OneCycle(
        0.85, 100, pct_start=0.5, div_factor=0.85 / 0.95, final_div_factor=1.0
    )
    assert [schedule(s) for s in (0, 49, 99, 500)] == pytest.approx([0.95, 0.85, 0.95, 0.95])


# ---------------------------------------------------------------------- in optimizers


def descend(learning_rate: Any, steps: int, **arguments: Any) -> list[float]:
    """Return by how much each of some steps moves a variable with gradient 1."""
    v = fo.Variable(np.float64(0.0), name="v")
    opt = fo.GradientDescentOptimizer(learning_rate)
    moves = []
    for _ in range(steps):
        before = v.item()
        opt.minimize(lambda: v * 1.0, **arguments)
        moves.append(before - v.item())
    return moves


@pytest.mark.parametrize("gate", [0, 1, 2])
def test_learning_rate(gate: int) -> None:
    """A schedule sees the step before the call increments it."""
    schedule = schedules.ExponentialDecay(1.0, 1, 0.5)
    step = fo.Variable(np.int64(0), trainable=False, name="step")
    expected = [1.0, 0.5, 0.25, 0.125]
    assert descend(schedule, 4, global_step=step, gate_gradients=gate) == expected
    step.assign(0)
    bound = schedules.exponential_decay(1.0, step, 1, 0.5)
    assert descend(bound, 4, global_step=step, gate_gradients=gate) == expected
    # bound to one step, used with another that stands still
    other = fo.Variable(np.int64(0), trainable=False, name="other")
    step.assign(2)
    assert descend(bound, 2, global_step=other, gate_gradients=gate) == [0.25, 0.25]
    assert other.item() == 2


def test_unbound_without_a_step_changes_nothing() -> None:
    v = fo.Variable(np.ones(2), name="v")
    opt = fo.AdamOptimizer(schedules.ExponentialDecay(1.0, 1, 0.5))
    for _ in range(2):
        with pytest.raises(TypeError, match="not bound to a step.*global_step="):
            opt.apply_gradients([(np.ones(2), v)])
        np.testing.assert_array_equal(v, [1.0, 1.0])
        assert opt.variables() == []
    step = fo.Variable(np.int64(0), trainable=False)
    opt.apply_gradients([(np.ones(2), v)], global_step=step)
    before = v.numpy()
    with pytest.raises(TypeError, match="not bound"):  # not the step of the call before
        opt.apply_gradients([(np.ones(2), v)])
    np.testing.assert_array_equal(v, before)


def test_any_hyperparameter() -> None:
    step = fo.Variable(np.int64(0), trainable=False)
    v = fo.Variable(np.float64(0.0), name="v")
    momentum = schedules.OneCycle(0.5, 10, div_factor=0.5 / 0.9, final_div_factor=1.0)
    opt = fo.MomentumOptimizer(0.1, momentum)
    slot = 0.0
    for k in range(10):
        opt.minimize(lambda: v * 1.0, global_step=step)
        slot = slot * momentum(k) + 1.0
        assert opt.get_slot(v, "momentum").item() == pytest.approx(slot, rel=1e-14)


def test_rule_written_in_python() -> None:
    class Descent(fo.Optimizer):
        def __init__(self, learning_rate: Any) -> None:
            super().__init__(False, "Descent")
            self._learning_rate = learning_rate

        def _prepare(self) -> None:
            self._rate = self._call_if_callable(self._learning_rate)

        def _apply_dense(self, grad: np.ndarray, var: fo.Variable) -> None:
            var.assign_sub(self._rate * grad)

    v = fo.Variable(np.float64(0.0), name="v")
    step = fo.Variable(np.int64(0), trainable=False)
    opt = Descent(schedules.InverseTimeDecay(1.0, 1, 1.0))
    for _ in range(2):
        opt.apply_gradients([(1.0, v)], global_step=step)
    assert v.item() == -1.5


def test_copied_optimizer() -> None:
    """online-ml/river PR#1920: a copied optimizer held a wrapped rate and failed."""
    step = fo.Variable(np.int64(0), trainable=False, name="step")
    for rate in (
        schedules.ExponentialDecay(0.5, 1, 0.9),
        schedules.exponential_decay(0.5, step, 1, 0.9),
        lambda: 0.5,
        0.5,
    ):
        v = fo.Variable(np.ones(3), name="v")
        opt = fo.AdamOptimizer(rate)
        opt.apply_gradients([(np.ones(3), v)], global_step=step)
        other_opt, other_v = copy.deepcopy((opt, v))
        opt.apply_gradients([(np.full(3, 2.0), v)], global_step=step)
        step.assign_sub(1)
        other_opt.apply_gradients([(np.full(3, 2.0), other_v)], global_step=step)
        np.testing.assert_array_equal(v, other_v)
        assert opt.get_slot(v, "m") is not other_opt.get_slot(other_v, "m")


# ---------------------------------------------------------------------- in the docs

DOCS = Path(__file__).parent.parent / "docs"


def test_documentation_runs() -> None:
    with fo.Graph().as_default():
        failures, examples = doctest.testfile(str(DOCS / "schedules.md"), module_relative=False)
    assert examples > 10 and failures == 0


def test_documentation_shows_every_schedule() -> None:
    text = (DOCS / "schedules.md").read_text()
    assert all(f"`{name}`" in text for name in schedules.__all__ if name != "Schedule")
    plots = runpy.run_path(str(DOCS / "plot_schedules.py"))
    drawn = {
        type(schedule).__name__
        for panels in plots["FIGURES"].values()
        for curves in panels.values()
        for schedule in curves.values()
    }
    assert drawn == set(EXAMPLES)
    for name in plots["FIGURES"]:
        assert (plots["IMAGES"] / f"schedules_{name}.svg").is_file()
        assert f"images/schedules_{name}.svg" in text


def test_a_power_that_has_no_bound_is_infinite() -> None:
    assert power(0.0, -1.0) == power(10.0, 400.0) == math.inf
    assert power(10.0, -400.0) == 0.0
