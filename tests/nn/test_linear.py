"""`nn.linear` against the same written with operators, central differences and PyTorch."""

import numpy as np
import pytest

import fastopt as fo
from fastopt import nn
from fastopt._kernels import _nn
from fastopt.autodiff import Tensor, gradients
from tests.autodiff.check import check, normal

F32 = np.finfo(np.float32).eps


def written_out(inputs, w, b, relu):
    joined = np.concatenate(inputs, axis=-1)
    out = joined @ w if b is None else joined @ w + b
    return nn.relu(out) if relu else out


@pytest.mark.parametrize("activation", [None, nn.relu, nn.softplus])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (0,)])
@pytest.mark.parametrize("bias", [True, False])
def test_derivatives(lead, bias, activation):
    x, w, b = normal(*lead, 4), normal(4, 3, seed=1), normal(3, seed=2)
    if bias:
        check(lambda x, w, b: nn.linear(x, w, b, activation), x, w, b)
    else:
        check(lambda x, w: nn.linear(x, w, None, activation), x, w)


def test_derivatives_of_several_inputs():
    x, y, z = normal(6, 2), normal(6, 1, seed=1), normal(6, 3, seed=2)
    w, b = normal(6, 4, seed=3), normal(4, seed=4)
    check(lambda x, y, z, w, b: nn.linear([x, y, z], w, b, nn.relu), x, y, z, w, b)
    # Inputs without gradient among others.
    y, z, b = (a.astype(np.float32) for a in (y, z, b))
    check(lambda x, w: nn.linear((y, x, z), w, b), x, w, argnums=[0, 1])


@pytest.mark.parametrize("lead", [(5,), (2, 3), (0,)])
def test_derivatives_of_many_narrow_inputs(lead):
    widths = [3, 1, 8, 2, 16]
    xs = [normal(*lead, width, seed=k) for k, width in enumerate(widths)]
    w, b = normal(sum(widths), 4, seed=8), normal(4, seed=9)
    check(lambda w, b, *xs: nn.linear(xs, w, b, nn.relu), w, b, *xs)
    # Inputs without gradient among others.
    less = [x.astype(np.float32) for x in (*xs, b)]
    check(lambda x, y: nn.linear([x, y, *less[2:5]], w.astype(np.float32)), *xs[:2])


@pytest.mark.parametrize("dtypes", ["eeeee", "fffff", "ddddd", "ffdff"])
def test_many_narrow_inputs_are_as_one(dtypes):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(70, 8)).astype(dtype) for dtype in dtypes]
    arrays[1] = np.asfortranarray(arrays[1])
    xs = [Tensor(a) for a in arrays]
    w = rng.normal(size=(40, 3)).astype(np.result_type(*arrays))
    out = nn.linear(xs, w)
    eps = np.finfo(w.dtype).eps
    # Sums of 40 terms of size up to 10.
    np.testing.assert_allclose(out.numpy(), np.concatenate(arrays, 1) @ w, atol=400 * eps)
    up = rng.normal(size=(70, 3)).astype(w.dtype)
    found = gradients(out, xs, grad_ys=[up])
    assert [g.dtype.char for g in found] == list(dtypes)
    coarse = max(np.finfo(dtype).eps for dtype in dtypes)
    for k, g in enumerate(found):
        expected = up @ w[8 * k : 8 * k + 8].T
        np.testing.assert_allclose(g, expected, rtol=4 * coarse, atol=40 * coarse)


@pytest.mark.parametrize("x", [None, 2.0, [np.ones((3, 2)), 2.0]])
def test_an_input_without_axes_is_named(x):
    with pytest.raises(ValueError, match=r"input must have at least one axis, got (None|2\.0)"):
        fo.nn.linear(x, np.ones((2, 2)))


def test_many_narrow_inputs_must_fit_each_other():
    xs = [np.ones((3, 2)) for _ in range(5)]
    with pytest.raises(ValueError, match="same axes but for the last one"):
        nn.linear([*xs, np.ones((4, 2))], np.ones((12, 1)))
    with pytest.raises(ValueError, match="as many rows as the input has columns: 9"):
        nn.linear(xs, np.ones((9, 1)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("relu", [True, False])
def test_same_as_written_out(dtype, relu):
    rng = np.random.default_rng(0)
    eps = np.finfo(dtype).eps
    values = [rng.normal(size=(300, 5)), rng.normal(size=(300, 2)), rng.normal(size=(7, 3))]
    results = []
    for f in (lambda *a: nn.linear(*a[:3], nn.relu if relu else None), lambda *a: written_out(*a)):
        x, y, w = (Tensor(v.astype(dtype)) for v in values)
        b = Tensor(np.linspace(-1, 1, 3).astype(dtype))
        out = f([x, y], w, b, relu)
        assert out.dtype == dtype
        up = np.random.default_rng(1).normal(size=(300, 3)).astype(dtype)
        found = gradients(out, [x, y, w, b], grad_ys=[up])
        assert [g.dtype for g in found] == [np.dtype(dtype)] * 4
        results.append([out.numpy(), *found])
    # Sums of 300 terms of size up to 10, in other orders.
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=20 * eps, atol=300 * eps)


def test_dtypes_are_those_of_the_operators():
    x32, w32 = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    for x, w, b in [
        (x32, w32, np.ones(4)),
        (x32.astype(int), w32, np.ones(4, np.float32)),
        (np.ones((2, 3)), w32, None),
        (x32.astype(int), w32.astype(int), np.ones(4, int)),
    ]:
        expected = x @ w if b is None else x @ w + b
        for activation in (None, nn.relu):
            out = nn.linear(x, w, b, activation)
            assert type(out) is np.ndarray
            assert out.dtype == expected.dtype
            np.testing.assert_array_equal(out, expected)
    w = fo.Variable(w32)
    out = nn.linear(x32, w, np.ones(4))
    assert out.dtype == np.float64
    assert gradients(out, [w])[0].dtype == np.float32


def test_no_views_of_arguments_and_contiguous_or_not():
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(4, 50)).T, rng.normal(size=(3, 4)).T
    b = np.repeat(rng.normal(size=3), 2)[::2]
    wv = Tensor(w)
    out = nn.linear(x, wv, b, nn.relu)
    np.testing.assert_allclose(out.numpy(), np.maximum(x @ w + b, 0), rtol=1e-13)
    up = rng.normal(size=(3, 50)).T
    (g,) = gradients(out, [wv], grad_ys=[up])
    np.testing.assert_allclose(g, x.T @ (up * (out.numpy() > 0)), rtol=1e-12, atol=1e-13)


def test_relu_stops_what_is_not_finite_and_keeps_nan():
    w, b = Tensor(np.eye(2)), Tensor(np.array([0.0, 0.0]))
    out = nn.linear(np.array([[-1.0, np.nan], [2.0, -0.0]]), w, b, nn.relu)
    with np.errstate(invalid="ignore"):
        value = out.numpy()
    assert np.isnan(value[0]).all()  # NaN * 0 reaches both columns
    assert value[1].tolist() == [2.0, 0.0]
    assert not np.signbit(value[1, 1])
    out = nn.linear(np.array([[-1.0, 3.0]]), w, b, nn.relu)
    (g,) = gradients(out, [b], grad_ys=[np.array([[np.inf, 5.0]])])
    assert g.tolist() == [0.0, 5.0]


def test_in_eager_mode_it_returns_arrays():
    w = fo.Variable(np.ones((2, 2), np.float32))
    with fo.eager_mode():
        out = nn.linear(np.ones((1, 2), np.float32), w, None, nn.relu)
    assert type(out) is np.ndarray
    assert out.dtype == np.float32
    assert out.tolist() == [[2.0, 2.0]]


def test_trains_with_rows_of_a_table():
    """One step on a look-up and dense columns equals the step written with operators."""
    rng = np.random.default_rng(5)
    ids, dense = rng.integers(0, 9, (6, 2)), rng.normal(size=(6, 3)).astype(np.float32)
    table, weights = rng.normal(size=(9, 4)), rng.normal(size=(11, 5))
    after = []
    for fused in (True, False):
        t, w = (fo.Variable(v.astype(np.float32)) for v in (table, weights))
        b = fo.Variable(np.zeros(5, np.float32))

        def loss(t=t, w=w, b=b, fused=fused):
            inputs = [fo.embedding_lookup(t, ids).reshape(6, 8), dense]
            h = nn.linear(inputs, w, b, nn.relu) if fused else written_out(inputs, w, b, True)
            return np.mean(h * h)

        fo.AdagradOptimizer(0.1).minimize(loss)
        after.append([v.numpy() for v in (t, w, b)])
    for ours, theirs in zip(*after, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=50 * F32, atol=50 * F32)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((np.ones((2, 3)), np.ones((4, 2))), ValueError, "w must have as many rows"),
        ((np.ones((2, 3)), np.ones(3)), ValueError, "w must be a matrix"),
        ((np.ones((2, 3)), np.ones((3, 2)), np.ones(3)), ValueError, r"b must have shape \(2,\)"),
        ((np.float64(1), np.ones((1, 2))), ValueError, "at least one axis"),
        (([np.ones((2, 1)), np.ones((3, 2))], np.ones((3, 2))), ValueError, "same axes"),
        (([], np.ones((3, 2))), ValueError, "at least one input"),
        ((np.ones((2, 3)), np.ones((3, 2)), None, "relu"), TypeError, "activation must be"),
    ],
)
def test_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        nn.linear(*arguments)
    wrapped = [Tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
    with pytest.raises(error, match=text):
        nn.linear(*wrapped)


def test_same_as_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(6)
    x, w = rng.normal(size=(70, 9)).astype("f"), rng.normal(size=(9, 5)).astype("f")
    b, up = rng.normal(size=5).astype("f"), rng.normal(size=(70, 5)).astype("f")
    tx, tw, tb = (torch.tensor(a, requires_grad=True) for a in (x, w, b))
    theirs = torch.relu(torch.nn.functional.linear(tx, tw.T, tb))
    theirs.backward(torch.tensor(up))
    leaves = [Tensor(a) for a in (x, w, b)]
    ours = nn.linear(*leaves, nn.relu)
    found = gradients(ours, leaves, grad_ys=[up])
    for mine, other in zip(
        [ours.numpy(), *found], [theirs.detach(), tx.grad, tw.grad, tb.grad], strict=True
    ):
        np.testing.assert_allclose(mine, other.numpy(), rtol=100 * F32, atol=100 * F32)


# ---------------------------------------------------------------------- kernels


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (7,), (257, 1), (1000, 33), (5000, 64)])
def test_kernels_are_exact(shape, dtype):
    rng = np.random.default_rng(sum(shape))
    x, g = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    b = rng.normal(size=shape[-1]).astype(dtype)
    for bias in (None, b):
        for relu in (True, False):
            out = x.copy()
            _nn.bias_relu(out, bias, relu)
            expected = x if bias is None else x + bias
            np.testing.assert_array_equal(out, np.maximum(expected, 0) if relu else expected)
    for y in (None, x):
        out, sums = _nn.mask(g, y, True)
        expected = g if y is None else np.where(y > 0, g, 0)
        np.testing.assert_array_equal(out, expected)
        rows = np.atleast_2d(expected).astype(np.float64)
        # 256 terms one after the other, then float64.
        bound = 256 * np.finfo(dtype).eps * np.abs(rows).sum(axis=0)
        assert np.all(np.abs(sums - rows.sum(axis=0)) <= bound)
        assert _nn.mask(g, y)[1] is None
        np.testing.assert_array_equal(_nn.mask(g, y)[0], expected)


def test_same_bits_on_any_number_of_threads():
    rng = np.random.default_rng(9)
    x, g = (rng.normal(size=(9000, 65)).astype(np.float32) for _ in range(2))
    b = rng.normal(size=65).astype(np.float32)
    before, seen = fo.get_num_threads(), []
    try:
        for n in (1, 2, 8):
            fo.set_num_threads(n)
            y = x.copy()
            _nn.bias_relu(y, b, True)
            seen.append((y.tobytes(), *(a.tobytes() for a in _nn.mask(g, y, True))))
    finally:
        fo.set_num_threads(before)
    assert seen[0] == seen[1] == seen[2]


def test_kernels_check_what_they_are_given():
    x = np.ones((2, 3), np.float32)
    for bad in (x.astype(np.float16), x.T, [1.0], x.astype(">f4")):
        assert not _nn.fits(bad)
        with pytest.raises(TypeError):
            _nn.bias_relu(bad, None, True)
        with pytest.raises(TypeError):
            _nn.mask(bad, None, True)
    with pytest.raises(ValueError, match="bias"):
        _nn.bias_relu(x, np.ones(4, np.float32), True)
    with pytest.raises(ValueError, match="bias"):
        _nn.bias_relu(x, np.ones(3), True)
    with pytest.raises(ValueError, match="y has"):
        _nn.mask(x, x[:1], True)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        _nn.bias_relu(x, None, True)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_side_by_side_and_back(dtype, threads):
    rng = np.random.default_rng(0)
    widths = [8, 16, 32, 1, 7, 0, 40]  # some that are copied by a size known before, some not
    pieces = [rng.normal(size=(3_001, width)).astype(dtype) for width in widths]
    begins = [0, *np.cumsum(widths).tolist()]
    with fo.num_threads(threads):
        wide = np.empty((3_001, begins[-1]), dtype)
        _nn.join_columns(list(zip(begins, pieces, strict=False)), wide)
        np.testing.assert_array_equal(wide, np.concatenate(pieces, 1))
        back = [np.empty_like(piece) for piece in pieces]
        _nn.split_columns(wide, list(zip(begins, back, strict=False)))
    for piece, other in zip(pieces, back, strict=True):
        np.testing.assert_array_equal(piece, other)


def test_columns_out_of_bounds_are_refused():
    wide, piece = np.zeros((4, 6), np.float32), np.ones((4, 3), np.float32)
    with pytest.raises(ValueError, match="3 columns from 4 on are not among 6"):
        _nn.join_columns([(4, piece)], wide)
    with pytest.raises(ValueError, match="3 columns from -1 on are not among 6"):
        _nn.split_columns(wide, [(-1, piece)])
    with pytest.raises(ValueError, match="doesn't go with the other"):
        _nn.join_columns([(0, np.ones((5, 3), np.float32))], wide)
    with pytest.raises(ValueError, match="doesn't go with the other"):
        _nn.join_columns([(0, np.ones((4, 3)))], wide)
    with pytest.raises(TypeError, match="a piece must be an aligned, C-contiguous array"):
        _nn.join_columns([(0, np.ones((4, 6), np.float32)[:, ::2])], wide)
    piece.flags.writeable = False
    with pytest.raises(ValueError, match="a piece is read-only"):
        _nn.split_columns(wide, [(0, piece)])
    assert not wide.any()
