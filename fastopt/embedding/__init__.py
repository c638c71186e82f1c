"""Look-ups of table rows by id, single and in bags."""

from fastopt.embedding.dot import embedding_dot
from fastopt.embedding.lookup import embedding_lookup
from fastopt.embedding.pooled import embedding_lookup_sparse
from fastopt.embedding.quantized import QuantizedTable, quantize_table
from fastopt.embedding.ragged import RaggedIds
from fastopt.embedding.safe import safe_embedding_lookup_sparse

__all__ = [
    "QuantizedTable",
    "RaggedIds",
    "embedding_dot",
    "embedding_lookup",
    "embedding_lookup_sparse",
    "quantize_table",
    "safe_embedding_lookup_sparse",
]
