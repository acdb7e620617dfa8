"""Training samples out of token shards."""

from pretrain.data.blend import Blend
from pretrain.data.documents import document_ids, positions, prefix_ends
from pretrain.data.examples import ExampleReader, ExampleShard, Packs
from pretrain.data.loader import (
    IGNORED_TARGET,
    Batch,
    CorpusShare,
    Loader,
    SampleBlend,
    SampleStream,
    data_digest,
)
from pretrain.data.order import epoch_keys, permute, unpermute
from pretrain.data.reader import ShardReader
from pretrain.data.stream import Shard, Span, Stream

__all__ = [
    "IGNORED_TARGET",
    "Batch",
    "Blend",
    "CorpusShare",
    "ExampleReader",
    "ExampleShard",
    "Loader",
    "Packs",
    "SampleBlend",
    "SampleStream",
    "Shard",
    "ShardReader",
    "Span",
    "Stream",
    "data_digest",
    "document_ids",
    "epoch_keys",
    "permute",
    "positions",
    "prefix_ends",
    "unpermute",
]
