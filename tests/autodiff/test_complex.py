"""Complex numbers: gradients in TensorFlow's convention, or an error."""

import numpy as np
import pytest

from fastopt.autodiff import Tensor, gradients

STEP = 1e-6


def numbers(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


HOLOMORPHIC = {
    "square": lambda z: z**2,
    "power": lambda z: z**3.0,
    "exp": np.exp,
    "sin": np.sin,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "log": np.log,
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
    "divide": lambda z: (1 + 2j) / z,
    "multiply": lambda z: (1 + 2j) * z * z,
    "subtract": lambda z: 1j - z,
    "sum": lambda z: np.sum(z * z, axis=0),
    "mean": lambda z: np.mean(z),
    "cumsum": lambda z: np.cumsum(z, axis=1),
    "matmul": lambda z: z @ (z.T + 1j),
    "einsum": lambda z: np.einsum("ij,kj->ik", z, z * 1j),
    "tensordot": lambda z: np.tensordot(z, 1j * z, ([1], [1])),
    "transpose": lambda z: z.T * 1j,
    "index": lambda z: z[[0, 0]] * 1j + z[:1],
    "concatenate": lambda z: np.concatenate([z, 1j * z]),
    "power of both": lambda z: (2 + 1j) ** z,
}


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_conjugate_convention(name):
    """The gradient is dL/dx + i dL/dy of the real part of sum(conj(w) * f(x + iy))."""
    f = HOLOMORPHIC[name]
    z = numbers(2, 3)
    x = Tensor(z)
    y = f(x)
    w = numbers(*y.shape, seed=1)
    (g,) = gradients(y, x, grad_ys=[w])
    assert g.dtype == z.dtype
    expected = np.zeros(z.shape, complex)
    for place in np.ndindex(z.shape):
        for unit in (1, 1j):
            moved = []
            for step in (unit * STEP, -unit * STEP):
                shifted = z.copy()
                shifted[place] += step
                moved.append(np.sum(np.conj(w) * f(shifted)).real)
            expected[place] += unit * (moved[0] - moved[1]) / (2 * STEP)
    np.testing.assert_allclose(g, expected, rtol=1e-6, atol=1e-7)


def test_real_inputs_get_real_gradients():
    x = Tensor(np.array([1.0, 2.0]))
    (g,) = gradients(x * (3 + 4j), x, grad_ys=[np.array([1 + 0j, 1j])])
    assert g.dtype == np.float64
    # The real part of conj(3 + 4j) * w.
    np.testing.assert_allclose(g, [3.0, 4.0])


REFUSED = {
    "absolute": np.abs,
    "maximum": lambda z: np.maximum(z, 0),
    "prod": np.prod,
    "var": np.var,
    "real": np.real,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_holomorphic_is_refused(name):
    x = Tensor(numbers(2))
    y = REFUSED[name](x)
    w = np.ones(y.shape, y.dtype)
    with pytest.raises(TypeError, match=f"numpy.{name} is not differentiated for complex"):
        gradients(y, x, grad_ys=[w])


def test_functions_that_refuse_at_once():
    x = Tensor(numbers(2))
    with pytest.raises(TypeError, match="numpy.vdot is not differentiated for complex"):
        np.vdot(x, x)
    with pytest.raises(TypeError, match="numpy.linalg.norm is not differentiated for complex"):
        np.linalg.norm(x)
