"""Draw the plots of docs/schedules.md.

    pip install "fastopt[docs]"
    python docs/plot_schedules.py

The files are the same bytes each time, so a change of a plot is a change of a schedule.
"""

from __future__ import annotations

from pathlib import Path

from fastopt import schedules
from fastopt.schedules import Schedule

STEPS = 1000
IMAGES = Path(__file__).parent / "images"

# File name -> panels: title -> curves by label. All start or peak at 1.
FIGURES: dict[str, dict[str, dict[str, Schedule]]] = {
    "decay": {
        "ExponentialDecay(1, 250, 0.5)": {
            "smooth": schedules.ExponentialDecay(1.0, 250, 0.5),
            "staircase": schedules.ExponentialDecay(1.0, 250, 0.5, staircase=True),
        },
        "NaturalExponentialDecay(1, 250, 0.5)": {
            "smooth": schedules.NaturalExponentialDecay(1.0, 250, 0.5),
            "staircase": schedules.NaturalExponentialDecay(1.0, 250, 0.5, staircase=True),
        },
        "InverseTimeDecay(1, 250, 0.5)": {
            "smooth": schedules.InverseTimeDecay(1.0, 250, 0.5),
            "staircase": schedules.InverseTimeDecay(1.0, 250, 0.5, staircase=True),
        },
    },
    "polynomial": {
        "PolynomialDecay(1, 600, 0.1)": {
            f"power={power:g}": schedules.PolynomialDecay(1.0, 600, 0.1, power)
            for power in (0.5, 1.0, 2.0)
        },
        "PolynomialDecay(1, 250, 0.1, cycle=True)": {
            f"power={power:g}": schedules.PolynomialDecay(1.0, 250, 0.1, power, cycle=True)
            for power in (0.5, 1.0, 2.0)
        },
        "PiecewiseConstantDecay": {
            "[300, 700] → [1, 0.3, 0.1]": schedules.PiecewiseConstantDecay(
                [300, 700], [1.0, 0.3, 0.1]
            ),
        },
    },
    "cosine": {
        "CosineDecay(1, 800)": {
            "alpha=0": schedules.CosineDecay(1.0, 800),
            "alpha=0.2": schedules.CosineDecay(1.0, 800, alpha=0.2),
        },
        "CosineDecayRestarts(1, 100)": {
            "m_mul=1": schedules.CosineDecayRestarts(1.0, 100),
            "m_mul=0.7, alpha=0.1": schedules.CosineDecayRestarts(1.0, 100, m_mul=0.7, alpha=0.1),
        },
        "LinearCosineDecay(1, 1000)": {
            "num_periods=0.5": schedules.LinearCosineDecay(1.0, 1000),
            "num_periods=3.5": schedules.LinearCosineDecay(1.0, 1000, num_periods=3.5),
        },
        "NoisyLinearCosineDecay(1, 1000, 0.1)": {
            "seed=1": schedules.NoisyLinearCosineDecay(1.0, 1000, 0.1, seed=1),
        },
    },
    "warmup": {
        "LinearWarmup(…, 200)": {
            "then 1": schedules.LinearWarmup(1.0, 200),
            "then CosineDecay(1, 800)": schedules.LinearWarmup(
                schedules.CosineDecay(1.0, 800), 200
            ),
        },
        "OneCycle(1, 1000)": {
            "default": schedules.OneCycle(1.0, 1000),
            "three_phase=True": schedules.OneCycle(1.0, 1000, three_phase=True),
            'anneal_strategy="linear"': schedules.OneCycle(1.0, 1000, anneal_strategy="linear"),
        },
    },
}


def draw(panels: dict[str, dict[str, Schedule]], path: Path) -> None:
    """Draw one file with its panels side by side."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "fastopt", "font.size": 9, "path.simplify": True}
    )
    from matplotlib import pyplot

    steps = range(0, STEPS + 1, 4)
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(3.4 * len(panels), 3.1), sharey=True, squeeze=False
    )
    for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for label, schedule in curves.items():
            axis.plot(steps, [schedule(step) for step in steps], label=label, linewidth=1.2)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("step")
        axis.grid(linewidth=0.3)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.25))  # hides no curve
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def main() -> None:
    """Draw all files."""
    IMAGES.mkdir(exist_ok=True)
    for name, panels in FIGURES.items():
        draw(panels, IMAGES / f"schedules_{name}.svg")


if __name__ == "__main__":
    main()
