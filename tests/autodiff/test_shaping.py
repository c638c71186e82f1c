"""Derivatives of functions that move elements."""

import numpy as np
import pytest

from fastopt.autodiff import Tensor, gradients
from fastopt.variable import Variable

from .check import apart, check, normal

SHAPES = {
    "reshape": (lambda x: np.reshape(x, (3, 4)), (2, 6)),
    "reshape -1": (lambda x: x.reshape(-1), (2, 3)),
    "reshape *": (lambda x: x.reshape(3, -1), (2, 3)),
    "reshape F": (lambda x: np.reshape(x, (3, 2), order="F"), (2, 3)),
    "reshape 0-d": (lambda x: np.reshape(x, (1, 1)), ()),
    "ravel": (np.ravel, (2, 3)),
    "ravel F": (lambda x: x.ravel("F"), (2, 3)),
    "flatten": (lambda x: x.flatten(), (2, 3)),
    "transpose": (np.transpose, (2, 3, 4)),
    "transpose axes": (lambda x: np.transpose(x, (2, 0, 1)), (2, 3, 4)),
    "transpose negative": (lambda x: x.transpose(-1, 0, -2), (2, 3, 4)),
    "transpose tuple": (lambda x: x.transpose((1, 0)), (2, 3)),
    "T": (lambda x: x.T, (2, 3)),
    "mT": (lambda x: x.mT, (2, 3, 4)),
    "matrix_transpose": (np.matrix_transpose, (2, 3, 4)),
    "permute_dims": (lambda x: np.permute_dims(x, (1, 0)), (2, 3)),
    "swapaxes": (lambda x: np.swapaxes(x, 0, -1), (2, 3, 4)),
    "moveaxis": (lambda x: np.moveaxis(x, 0, -1), (2, 3, 4)),
    "moveaxis many": (lambda x: np.moveaxis(x, (0, 2), (1, 0)), (2, 3, 4)),
    "rollaxis": (lambda x: np.rollaxis(x, 2), (2, 3, 4)),
    "rollaxis start": (lambda x: np.rollaxis(x, 0, 3), (2, 3, 4)),
    "rollaxis negative": (lambda x: np.rollaxis(x, -3, -1), (2, 3, 4)),
    "expand_dims": (lambda x: np.expand_dims(x, 1), (2, 3)),
    "expand_dims many": (lambda x: np.expand_dims(x, (0, -1)), (2, 3)),
    "squeeze": (np.squeeze, (2, 1, 3, 1)),
    "squeeze axis": (lambda x: x.squeeze(axis=1), (2, 1, 3, 1)),
    "broadcast_to": (lambda x: np.broadcast_to(x, (4, 2, 3)), (2, 1)),
    "broadcast_to 0-d": (lambda x: np.broadcast_to(x, (2, 2)), ()),
    "broadcast_arrays": (lambda x: np.broadcast_arrays(x, np.ones((2, 3)))[0], (3,)),
    "atleast_1d": (np.atleast_1d, ()),
    "atleast_2d": (np.atleast_2d, (3,)),
    "atleast_3d": (np.atleast_3d, (2, 3)),
    "atleast_1d many": (lambda x: np.atleast_1d(x, 1.0)[0], ()),
    "tile": (lambda x: np.tile(x, 3), (2, 3)),
    "tile many": (lambda x: np.tile(x, (2, 1, 3)), (2, 3)),
    "tile short": (lambda x: np.tile(x, (2,)), (2, 2, 3)),
    "tile zero": (lambda x: np.tile(x, (0, 2)), (2, 3)),
    "tile 0-d": (lambda x: np.tile(x, 4), ()),
    "repeat": (lambda x: np.repeat(x, 3), (2, 3)),
    "repeat axis": (lambda x: np.repeat(x, 2, axis=0), (2, 3)),
    "repeat last": (lambda x: x.repeat(2, axis=-1), (2, 3)),
    "repeat middle": (lambda x: np.repeat(x, 2, axis=-2), (2, 3, 2)),
    "repeat each": (lambda x: np.repeat(x, [2, 0, 3], axis=1), (2, 3)),
    "repeat each flat": (lambda x: np.repeat(x, [2, 0, 1, 3]), (2, 2)),
    "repeat zero": (lambda x: np.repeat(x, 0, axis=1), (2, 3)),
    "roll": (lambda x: np.roll(x, 2), (2, 3)),
    "roll axis": (lambda x: np.roll(x, -1, axis=1), (2, 3)),
    "roll axes": (lambda x: np.roll(x, (1, 2), axis=(0, 1)), (2, 3)),
    "flip": (np.flip, (2, 3)),
    "flip axis": (lambda x: np.flip(x, 1), (2, 3)),
    "fliplr": (np.fliplr, (2, 3)),
    "flipud": (np.flipud, (2, 3)),
    "rot90": (np.rot90, (2, 3)),
    "rot90 k": (lambda x: np.rot90(x, 3, (1, 2)), (2, 3, 2)),
    "diagonal": (np.diagonal, (3, 4)),
    "diagonal offset": (lambda x: x.diagonal(-1), (3, 4)),
    "diagonal axes": (lambda x: np.diagonal(x, 1, 0, 2), (3, 2, 4)),
    "trace": (np.trace, (3, 3)),
    "trace offset": (lambda x: x.trace(offset=1), (3, 4)),
    "diag of a vector": (lambda x: np.diag(x, 1), (3,)),
    "diag of a matrix": (lambda x: np.diag(x, -1), (3, 4)),
    "triu": (lambda x: np.triu(x, 1), (3, 4)),
    "tril": (np.tril, (2, 3, 3)),
    "diff": (np.diff, (3, 4)),
    "diff twice": (lambda x: np.diff(x, 2, axis=0), (4, 2)),
    "pad": (lambda x: np.pad(x, 1), (2, 3)),
    "pad each": (lambda x: np.pad(x, ((1, 0), (2, 3))), (2, 3)),
    "pad value": (lambda x: np.pad(x, 2, constant_values=7.0), (3,)),
    "swapaxes method": (lambda x: x.swapaxes(0, 1), (2, 3)),
    "copy": (lambda x: x.copy(), (2, 3)),
    "pad edge": (lambda x: np.pad(x, ((0, 2), (1, 1)), mode="edge"), (2, 3)),
    "pad reflect": (lambda x: np.pad(x, 2, mode="reflect"), (3, 4)),
    "pad symmetric": (lambda x: np.pad(x, (1, 2), mode="symmetric"), (4,)),
    "pad wrap": (lambda x: np.pad(x, 5, mode="wrap"), (3,)),
    "sort": (np.sort, (3, 4)),
    "sort axis": (lambda x: np.sort(x, axis=0), (3, 4)),
    "sort flat": (lambda x: np.sort(x, axis=None), (3, 4)),
    "concatenate with itself": (lambda x: np.concatenate([x, x, x], axis=1), (2, 3)),
    "iteration": (lambda x: sum(row * i for i, row in enumerate(x)), (3, 2)),
    "unpacking": (lambda x: x[0] * x[1] if x.ndim == 1 else np.add(*x), (2,)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_one_array(name):
    f, shape = SHAPES[name]
    check(f, apart(*shape) + 2.0)


JOINS = {
    "concatenate": (lambda x, y: np.concatenate((x, y)), (2, 3), (1, 3)),
    "concatenate last": (lambda x, y: np.concatenate([x, y], axis=-1), (2, 3), (2, 2)),
    "concatenate flat": (lambda x, y: np.concatenate([x, y], axis=None), (2, 3), ()),
    "concatenate empty": (lambda x, y: np.concatenate([x, y]), (2, 3), (0, 3)),
    "concat": (lambda x, y: np.concat([x, y], axis=1), (2, 3), (2, 1)),
    "stack": (lambda x, y: np.stack([x, y]), (2, 3), (2, 3)),
    "stack last": (lambda x, y: np.stack([x, y, x], axis=-1), (2, 3), (2, 3)),
    "stack scalars": (lambda x, y: np.stack([x, y]), (), ()),
    "vstack": (lambda x, y: np.vstack([x, y]), (2, 3), (3,)),
    "hstack": (lambda x, y: np.hstack([x, y]), (2, 3), (2, 1)),
    "hstack vectors": (lambda x, y: np.hstack([x, y]), (2,), ()),
    "dstack": (lambda x, y: np.dstack([x, y]), (2, 3), (2, 3)),
    "column_stack": (lambda x, y: np.column_stack([x, y]), (3,), (3, 2)),
    "append": (lambda x, y: np.append(x, y, axis=0), (2, 3), (1, 3)),
    "append flat": (np.append, (2, 3), (2,)),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
def test_joins(name):
    f, first, second = JOINS[name]
    check(f, normal(*first, seed=1), normal(*second, seed=2))


def test_joins_with_constants():
    constant = np.ones((1, 3), np.float32)
    check(lambda x: np.concatenate([constant, x, constant]), normal(2, 3))
    check(lambda x: np.stack([x[0], constant[0]]), normal(1, 3))
    check(lambda x: np.hstack([x, np.float32(1.0)]), normal(3))
    check(lambda x: np.full_like(x, 2.0) * x, normal(3))
    check(lambda x: np.full_like(x, x[0]), normal(3))
    # As in NumPy, a list of numbers is an array of its own dtype.
    assert np.stack([Tensor(np.ones(2, np.float32)), [1, 2]]).dtype == np.float64


SPLITS = {
    "split": lambda x: np.split(x, 2, axis=1),
    "split at": lambda x: np.split(x, [1, 3], axis=1),
    "array_split": lambda x: np.array_split(x, 3, axis=1),
    "array_split rows": lambda x: np.array_split(x, 2),
    "split past the end": lambda x: np.split(x, [2, 9], axis=-1),
    "hsplit": lambda x: np.hsplit(x, 2),
    "vsplit": lambda x: np.vsplit(x, 3),
}


@pytest.mark.parametrize("name", SPLITS)
def test_splits(name):
    def f(x):
        parts = SPLITS[name](x)
        return sum(np.sum(part * (i + 1)) for i, part in enumerate(parts))

    x = normal(3, 4)
    check(f, x)
    for ours, theirs in zip(SPLITS[name](Tensor(x)), SPLITS[name](x), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs)


def test_broadcast_to_of_a_variable():
    """HIPS/autograd#384: no rule for broadcast_to."""
    x = Variable(np.ones(3))
    np.testing.assert_array_equal(
        gradients(np.sum(np.broadcast_to(x, (4, 3))), x)[0], [4.0, 4.0, 4.0]
    )


ERRORS = {
    "reshape: order='A'": lambda x: np.reshape(x, -1, order="A"),
    "pad: mode='mean'": lambda x: np.pad(x, 1, mode="mean"),
    "pad: reflect_type='odd'": lambda x: np.pad(x, 1, mode="reflect", reflect_type="odd"),
    "diff: prepend=": lambda x: np.diff(x, prepend=0.0),
    "concatenate: out=": lambda x: np.concatenate([x, x], out=np.zeros(8)),
    "linalg.svd": np.linalg.svd,
    "fft.fft": np.fft.fft,
    "median": np.median,
    "block": lambda x: np.block([x, x]),
    "copyto": lambda x: np.copyto(np.zeros(4), x),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_not_supported_is_named(name):
    with pytest.raises(TypeError, match="numpy." + name):
        ERRORS[name](Tensor(np.ones(4)))


def test_errors_of_shape():
    x = Tensor(np.ones((2, 3)))
    with pytest.raises(ValueError, match="must have the same shape"):
        np.stack([x, np.ones(3)])
    with pytest.raises(ValueError, match="cannot be split"):
        np.split(x, 2, axis=1)
    with pytest.raises(ValueError, match="sections must be > 0"):
        np.array_split(x, 0)
    with pytest.raises(ValueError, match="vsplit only works"):
        np.vsplit(x[0], 3)
    with pytest.raises(ValueError, match="at least two axes"):
        x[0].mT  # noqa: B018


def test_functions_that_look_at_the_shape_alone():
    x = Tensor(np.ones((2, 3), np.float32))
    assert np.shape(x) == (2, 3) == x.shape
    assert np.ndim(x) == 2 == x.ndim
    assert np.size(x) == 6 == x.size
    assert np.size(x, 1) == 3
    assert x.nbytes == 24
    assert len(x) == 2
    assert np.isrealobj(x) and not np.iscomplexobj(x)
    for f in (np.zeros_like, np.ones_like, np.empty_like, lambda x: np.full_like(x, 3.0)):
        made = f(x)
        assert type(made) is np.ndarray
        assert made.shape == (2, 3)
        assert made.dtype == np.float32
    assert np.result_type(x, np.float64) == np.float64


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="NumPy 2.3 takes dicts")
def test_pad_by_axis():
    check(lambda x: np.pad(x, {0: 1, -1: (0, 2)}), normal(2, 3))


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy 2.1 names")
def test_reshape_by_keyword():
    check(lambda x: np.reshape(x, shape=(3, 2)), normal(2, 3))


def test_functions_of_plain_arrays_stay_plain():
    """Arguments may be differentiable in a place that carries no gradient."""
    ids = Variable(np.array([1, 0]))
    for result in (np.take(np.ones(3), ids), np.take_along_axis(np.ones(2), ids, 0)):
        assert type(result) is np.ndarray
