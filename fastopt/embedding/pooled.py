"""`embedding_lookup_sparse`: one row a bag of ids, the rows of its ids added up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastopt._arrays import contiguous, index_array, is_bfloat16, shown
from fastopt._kernels import _rows
from fastopt._kernels._pooled import pooled
from fastopt._kernels._step_memory import empty
from fastopt.autodiff import Differentiable
from fastopt.autodiff.at_hand import record
from fastopt.autodiff.recording import current
from fastopt.embedding.clipping import Clip, checked_max_norm
from fastopt.embedding.pooled_gradient import pooled_gradient
from fastopt.embedding.quantized import QuantizedTable
from fastopt.embedding.ragged import Bags, RaggedIds, as_bags, as_weights
from fastopt.embedding.tables import Array, Part, Tables, fits_kernels
from fastopt.indexed_slices import IndexedSlices
from fastopt.variable import Variable

COMBINERS = ("mean", "sqrtn", "sum")


def embedding_lookup_sparse(
    params: Any,
    sp_ids: Any,
    sp_weights: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
) -> Any:
    """Look up bags of ids and combine the rows of each bag.

    With rows e and weights w (1 if there are none), a bag becomes ``sum(w * e)`` for the combiner
    "sum", divided by ``sum(w)`` for "mean" and by ``sqrt(sum(w ** 2))`` for "sqrtn". It is zero
    where the divisor is zero and where the bag is empty.

    Parameters
    ----------
    params : Variable, Tensor, QuantizedTable or array_like, shape (rows, ...), or list of them
        The table, or the parts of one; of a floating dtype.
    sp_ids : scipy.sparse matrix or array, RaggedIds, tuple (ids, offsets), or list of lists
        The bags. Of a sparse matrix, each row is a bag, the *stored data* are the ids, and the
        columns are not looked at. Id 0 is then a stored zero: make such a matrix from ``(ids,
        columns, indptr)`` and not from a dense array, and do not call ``eliminate_zeros``.
        `RaggedIds` and lists have no such trap. A sparse array with more axes has a bag for each
        index of its leading axes.
    sp_weights : None, or of the form of `sp_ids`, or array_like, Variable or Tensor of shape (n,)
        One weight an id, in the order of the ids; may be negative. Gradients flow into a Variable
        or Tensor. They are cast to the table's dtype.
    partition_strategy : {"mod", "div"}
        How ids are spread over several tables; see `embedding_lookup`.
    name : str, optional
        What messages call the look-up, and the name of the resulting Tensor.
    combiner : {"mean", "sqrtn", "sum"}, optional
        "mean" if None.
    max_norm : float, optional
        Rows with a larger L2 norm are scaled to it, before the weights.

    Returns
    -------
    Tensor or ndarray, shape ``(n_bags, *table.shape[1:])``
        A Tensor if a table or the weights are a Variable or Tensor. The gradient of a Variable is
        an `IndexedSlices` that lists each id once, in order of first appearance.

    Raises
    ------
    TypeError
        If `sp_ids` or `sp_weights` have no such form, ids are not integers, weights not real, or
        the table is not of a floating dtype.
    ValueError
        If ids, offsets and weights do not fit together, or `params`, `partition_strategy`,
        `combiner` or `max_norm` is not as described.
    IndexError
        If an id is negative or not less than the number of rows.

    Notes
    -----
    Every bag has its row. TensorFlow leaves out the rows after the last bag with an id.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> fo.embedding_lookup_sparse(table, [[0, 2], [], [1]], None)
    array([[3., 4.],
           [0., 0.],
           [3., 4.]])
    """
    if max_norm is None and (
        type(sp_ids) is RaggedIds or (type(sp_ids) is tuple and len(sp_ids) == 2)
    ):
        made = _of_one_table(
            "embedding_lookup_sparse" if name is None else name,
            params,
            sp_ids[0],
            sp_ids[1],
            sp_weights,
            "mean" if combiner is None else combiner,
        )
        if made is not None:
            return made
    tables = Tables(params, partition_strategy)
    bags = as_bags(sp_ids, "sp_ids", keep=current().records)
    weights = None if sp_weights is None else as_weights(sp_weights, bags, "sp_ids", "sp_weights")
    return lookup_bags(tables, bags, weights, combiner, max_norm, name, "embedding_lookup_sparse")


def _of_one_table(
    function: str, params: Any, ids: Any, offsets: Any, weights: Any, combiner: str
) -> Any | None:
    """Return the bags in one go, or None: there is something to convert, or to complain of."""
    trained = type(params) is Variable
    rows = params._at_hand() if trained else params
    if rows is None:  # some rows wait for their update
        if type(ids) is not np.ndarray or ids.dtype.kind != "i" or not ids.flags.c_contiguous:
            return None
        rows = params._read_at(index_array(ids.reshape(-1), "ids"))
    keep = trained and current().records
    found = pooled(rows, ids, offsets, weights, combiner, keep)
    if found is None:
        return None
    out, ids, offsets, coefficients, scales = found
    if not trained:
        return out
    dtype, shape, out_shape = rows.dtype, rows.shape, out.shape

    def vjp(g: Array) -> IndexedSlices:
        above = contiguous(np.asarray(g, dtype)).reshape(out_shape)
        return pooled_gradient(above, offsets, coefficients, scales, ids, shape)

    return record(function, out, [(params, vjp)])


def checked_combiner(combiner: str | None) -> str:
    """Return the combiner, "mean" for None.

    Raises
    ------
    ValueError
        If there is no such combiner.
    """
    if combiner is None:
        return "mean"
    if not isinstance(combiner, str) or combiner not in COMBINERS:
        raise ValueError(
            f"combiner must be one of {', '.join(map(repr, COMBINERS))}, got {shown(combiner)}"
        )
    return combiner


def lookup_bags(
    tables: Tables,
    bags: Bags,
    weights: Any,
    combiner: str | None,
    max_norm: float | None,
    name: str | None,
    function: str,
) -> Any:
    """Combine the rows of each bag; `weights` are None or 1-D and aligned with the ids."""
    combiner = checked_combiner(combiner)
    limit = checked_max_norm(max_norm)
    if tables.dtype.kind != "f" and not is_bfloat16(tables.dtype):
        raise TypeError(f"{tables.name_of(0)} must be of a floating dtype, got {tables.dtype}")
    what = "sp_ids" if name is None else f"sp_ids of {name!r}"
    wanted = isinstance(weights, Differentiable)
    values = None if weights is None else np.asarray(weights._read() if wanted else weights)
    pool = Pool(bags, values, combiner, _computed_in(tables.dtype))

    whole = None if wanted or limit is not None else _whole_table(tables, bags.ids)
    if whole is not None:
        parts, clip = [Part(0, bags.ids, None)], None
        try:
            out = pool.forward(whole, bags.ids, tables.row_shape)
        except IndexError:
            tables.check_range(bags.ids, bags.ids.shape, what)
            raise
    else:
        parts = tables.locate(bags.ids, bags.ids.shape, what)
        rows = tables.gather(parts, bags.ids.size)
        clip = None if limit is None else Clip(rows, limit)
        source = rows.astype(pool.dtype, copy=False)
        out = pool.forward(source, np.arange(bags.ids.size), tables.row_shape)
    result = out.astype(tables.dtype, copy=False).reshape(bags.shape + tables.row_shape)
    inputs = [
        (table, _table_gradient(tables, part, pool, clip))
        for part in parts
        if isinstance(table := tables.tables[part.table], Differentiable)
    ]
    if wanted:
        inputs.append((weights, lambda g: pool.weights_gradient(g, source, out, weights.dtype)))
    if not inputs:
        return result
    return record(function if name is None else name, result, inputs)


def _whole_table(tables: Tables, ids: Array) -> Array | QuantizedTable | None:
    """Return the only table in a form that a kernel can read, None if there is no such.

    The rows in `ids` are up to date; it is not yet known whether they are rows at all.
    """
    if len(tables.tables) != 1:
        return None
    table = tables.tables[0]
    if isinstance(table, QuantizedTable):
        return table
    if isinstance(table, Variable):
        array = table._read_at(ids)
    else:
        array = np.asarray(table._read() if isinstance(table, Differentiable) else table)
    return array if fits_kernels(array) else None


def _computed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which rows of another are combined: one that the kernels know."""
    return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)


class Pool:
    """The linear map from the rows of ids to bags.

    Bag b is ``scales[b] * sum(coefficients[k] * row[k])`` over its ids k. Only one of the two is
    there: without weights one factor a bag is enough, with weights the divisor goes into each of
    them, where it cannot overflow.

    Parameters
    ----------
    bags : Bags
    weights : ndarray, shape (n,), or None
    combiner : str
    dtype : dtype
        float32 or float64: that of the computation.
    """

    def __init__(self, bags: Bags, weights: Array | None, combiner: str, dtype: Any) -> None:
        self.bags = bags
        self.combiner = combiner
        self.dtype = np.dtype(dtype)
        self.scales: Array | None = None
        self.coefficients: Array | None = None
        self.divisors: Array | None = None
        if weights is None:
            if combiner != "sum":
                counts = np.maximum(bags.counts, 1)
                divisors = counts if combiner == "mean" else np.sqrt(counts)
                self.scales = (1.0 / divisors).astype(self.dtype)
        elif combiner == "sum":
            self.coefficients = weights.astype(self.dtype, copy=current().records)
            if not self.coefficients.flags.carray:
                self.coefficients = np.ascontiguousarray(self.coefficients)
        else:
            self._normalise(weights.astype(self.dtype).astype(np.float64))

    def _normalise(self, weights: Array) -> None:
        bag = self.bags.bag_of_each()
        n_bags = self.bags.offsets.size - 1
        if self.combiner == "mean":
            divisors = np.bincount(bag, weights=weights, minlength=n_bags)
        else:
            divisors = np.sqrt(np.bincount(bag, weights=weights * weights, minlength=n_bags))
        self.divisors = divisors
        each = divisors[bag]
        self.coefficients = np.divide(
            weights, each, out=np.zeros(weights.size), where=each != 0
        ).astype(self.dtype)

    def forward(
        self, source: Array | QuantizedTable, ids: Array, row_shape: tuple[int, ...]
    ) -> Array:
        """Return the bags, shape ``(n_bags, *row_shape)``, of rows `ids` of `source`."""
        if isinstance(source, QuantizedTable):
            return source._read_bags(ids, self.bags.offsets, self.coefficients, self.scales)
        out = empty((self.bags.offsets.size - 1, *row_shape), self.dtype)
        _rows.pooled_gather(source, ids, self.bags.offsets, self.coefficients, self.scales, out)
        return out

    def weights_gradient(self, g: Array, rows: Array, out: Array, dtype: Any) -> Array:
        """Return the gradient of the weights; `rows` are those of all ids, `out` the bags."""
        bag = self.bags.bag_of_each()
        n_bags = out.shape[0]
        width = math.prod(out.shape[1:])
        g = np.asarray(g, self.dtype).reshape(n_bags, width)
        along_rows = np.einsum("kd,kd->k", g[bag], rows.reshape(bag.size, width))
        if self.combiner == "sum":
            return along_rows.astype(dtype, copy=False)
        assert self.divisors is not None and self.coefficients is not None
        along_out = np.einsum("bd,bd->b", g, out.reshape(n_bags, width))[bag]
        if self.combiner == "sqrtn":
            along_out *= self.coefficients
        each = self.divisors[bag]
        total = np.divide(along_rows - along_out, each, out=np.zeros(bag.size), where=each != 0)
        return total.astype(dtype, copy=False)


def _through(clip: Clip, places: Array | None) -> Callable[[Array, Array], Array]:
    """Return how the gradient of rows goes through clipping; equal rows were clipped equally."""

    def through(values: Array, entries: Array) -> Array:
        return clip.backward(values, entries if places is None else places[entries])

    return through


def _table_gradient(tables: Tables, part: Part, pool: Pool, clip: Clip | None) -> Any:
    shape = tables.tables[part.table].shape

    def vjp(g: Array) -> IndexedSlices:
        n_bags = pool.bags.offsets.size - 1
        bags = contiguous(np.asarray(g, pool.dtype)).reshape((n_bags, *tables.row_shape))
        offsets, coefficients = pool.bags.offsets, pool.coefficients
        if part.places is not None:
            offsets = np.searchsorted(part.places, offsets)
            coefficients = None if coefficients is None else coefficients[part.places]
        through = None if clip is None else _through(clip, part.places)
        slices = pooled_gradient(
            bags, offsets, coefficients, pool.scales, part.rows, (*shape,), through
        )
        return slices.astype(tables.dtype)

    return vjp
