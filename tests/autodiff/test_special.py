"""Ufuncs of scipy.special, and of nobody known."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import special

from fastopt.autodiff import Tensor, gradients

from .check import between, check, normal, positive

UNARY = {
    "expit": normal,
    "log_expit": normal,
    "logit": lambda *shape: between(0.1, 0.9, *shape),
    "erf": normal,
    "erfc": normal,
    "ndtr": normal,
    "log_ndtr": normal,
    "gammaln": positive,
    "psi": positive,
    "entr": positive,
    "exp10": normal,
    "i0": normal,
    "j0": normal,
}


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, shape):
    check(getattr(special, name), UNARY[name](*shape))


def test_xlogy():
    check(special.xlogy, normal(2, 3), positive(3))
    x, y = Tensor(0.0), Tensor(0.0)
    assert gradients(special.xlogy(x, 2.0), x) == [np.log(2.0)]
    with np.errstate(all="ignore"):
        assert gradients(special.xlogy(x, y), [x, y]) == [0.0, 0.0]


@pytest.mark.parametrize("x", [-800.0, 800.0])
def test_far_out(x):
    t = Tensor(x)
    assert gradients(special.expit(t), t) == [0.0]
    assert gradients(special.log_expit(t), t) == [1.0 if x < 0 else 0.0]


def test_unknown_ufuncs_are_named():
    with pytest.raises(TypeError, match="^gdtr has no recorded form"):
        special.gdtr(Tensor(1.0), 1.0, 1.0)
    mine = np.frompyfunc(lambda x: x, 1, 1)
    with pytest.raises(TypeError, match="has no recorded form"):
        mine(Tensor(1.0))
    with pytest.raises(TypeError, match="scipy.special.expit: out= is not supported"):
        special.expit(Tensor(1.0), out=np.zeros(()))


def test_scipy_is_not_imported():
    code = "import sys, fastopt.autodiff; assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
