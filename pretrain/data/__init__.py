"""Training samples out of token shards."""

from pretrain.data.documents import document_ids
from pretrain.data.loader import Batch, Loader, Shard, Span, data_digest, open_loader
from pretrain.data.order import epoch_keys, permute
from pretrain.data.reader import ShardReader

__all__ = [
    "Batch",
    "Loader",
    "Shard",
    "ShardReader",
    "Span",
    "data_digest",
    "document_ids",
    "epoch_keys",
    "open_loader",
    "permute",
]
