"""`safe_embedding_lookup_sparse`: bags whose ids may be missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastopt.autodiff import Differentiable
from fastopt.embedding.pooled import checked_combiner, lookup_bags
from fastopt.embedding.ragged import Bags, as_bags, as_weights, taken
from fastopt.embedding.tables import Array, Tables


def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: Any,
    sparse_weights: Any = None,
    combiner: str | None = "mean",
    default_id: int | None = None,
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
) -> Any:
    """Look up bags in which a negative id means that the id is not known.

    Entries with a negative id are left out. So are, unless the combiner is "sum", entries whose
    weight is not positive. The rest is combined as `embedding_lookup_sparse` does.

    Parameters
    ----------
    embedding_weights : Variable, Tensor or array_like, shape (rows, ...), or a list or tuple of
    them
        The table, or the parts of one; of a floating dtype.
    sparse_ids : scipy.sparse matrix or array, RaggedIds, tuple (ids, offsets), or list of lists
        The bags; see `embedding_lookup_sparse`.
    sparse_weights : None, or of the form of `sparse_ids`, or array_like, Variable or Tensor,
    optional
        One weight an id.
    combiner : {"mean", "sqrtn", "sum"}, optional
        How rows are combined.
    default_id : int, optional
        The id, of weight 1, that a bag without entries gets. Such a bag is a zero row if it is
        None.
    name : str, optional
        What messages call the look-up, and the name of the resulting Tensor.
    partition_strategy : {"div", "mod"}
        How ids are spread over several tables; not the default of `embedding_lookup`.
    max_norm : float, optional
        Rows with a larger L2 norm are scaled to it, before the weights.

    Returns
    -------
    Tensor or ndarray, shape ``(n_bags, *table.shape[1:])``
        For ids with more than one leading axis, those axes in front.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `embedding_lookup_sparse`; ids that are too large are errors, and so is a `default_id`
        that is no row number.

    Examples
    --------
    >>> import numpy as np
    >>> import fastopt as fo
    >>> table = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> fo.safe_embedding_lookup_sparse(table, [[0, -1], [-1]], default_id=1)
    array([[1., 2.],
           [3., 4.]])
    """
    combiner = checked_combiner(combiner)
    tables = Tables(embedding_weights, partition_strategy)
    bags = as_bags(sparse_ids, "sparse_ids")
    weights = None
    if sparse_weights is not None:
        weights = as_weights(sparse_weights, bags, "sparse_ids", "sparse_weights")
    if default_id is not None and not 0 <= default_id < tables.n_rows:
        raise IndexError(f"default_id {default_id} is out of range for {tables.n_rows} rows")
    kept = _kept(bags, weights, combiner)
    what = "sparse_ids" if name is None else f"sparse_ids of {name!r}"
    tables.check_range(bags.ids, bags.ids.shape, what, kept)  # here the positions are the caller's
    bags, weights = _only(kept, bags, weights)
    if default_id is not None:
        bags, weights = _with_default(bags, weights, default_id)
    return lookup_bags(
        tables, bags, weights, combiner, max_norm, name, "safe_embedding_lookup_sparse"
    )


def _kept(bags: Bags, weights: Any, combiner: str) -> Array:
    """Return the positions of the entries that count."""
    keep = bags.ids >= 0
    if weights is not None and combiner != "sum":
        keep &= (weights._read() if isinstance(weights, Differentiable) else weights) > 0
    return np.flatnonzero(keep)


def _only(kept: Array, bags: Bags, weights: Any) -> tuple[Bags, Any]:
    """Leave out all other entries."""
    if kept.size == bags.ids.size:
        return bags, weights
    offsets = np.zeros_like(bags.offsets)
    np.cumsum(np.bincount(bags.bag_of_each()[kept], minlength=offsets.size - 1), out=offsets[1:])
    bags = Bags(bags.ids[kept], offsets, bags.shape)
    return bags, None if weights is None else taken(weights, kept)


def _with_default(bags: Bags, weights: Any, default_id: int) -> tuple[Bags, Any]:
    """Give each empty bag the entry `default_id` with weight 1."""
    empty = np.flatnonzero(bags.counts == 0)
    if empty.size == 0:
        return bags, weights
    places = bags.offsets[empty]
    n = bags.ids.size
    # `order` takes the old entries, and the new one (number n) before the entry at each place.
    order = np.insert(np.arange(n), places, n)
    ids = np.append(bags.ids, np.asarray(default_id, bags.ids.dtype))[order]
    offsets = bags.offsets.copy()
    offsets[1:] += np.cumsum(bags.counts == 0)
    if weights is not None:
        weights = np.concatenate([weights, np.ones(1, weights.dtype)])[order]
    return Bags(ids, offsets, bags.shape), weights
