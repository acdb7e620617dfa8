"""The pipeline, top to bottom: which stages there are and the order documents travel in.

    inputs -> extract -> filter -> signatures -> candidates -> clusters -> text

Each stage reads the manifests of earlier ones and writes a folder of committed files; shards stay one to one from
`extract` to `text`, so a document's place (shard, row) is its address in every sidecar. The tokenizer package goes on
from `text`.
"""

from __future__ import annotations

from collections.abc import Sequence

from corpus.dedup import Candidates, Clusters, Signatures, Survivors
from corpus.engine.stage import Stage
from corpus.engine.storage import File
from corpus.filters.stage import Filtering
from corpus.recipe import Recipe
from corpus.sources.stage import Extract


def stages(recipe: Recipe, inputs: Sequence[File]) -> list[Stage]:
    """The stages of a corpus build, in order; `inputs` are the files to read, each once."""
    return [
        Extract(tuple(inputs), recipe.sources, recipe.extract),  # records -> documents; bad records end here
        Filtering(recipe.filter),  # edit lines, measure, decide, mask -> kept documents
        Signatures(recipe.dedup),  # exact keys and MinHash per document, band keys by range
        Candidates(recipe.dedup),  # documents that share a key, verified -> edges
        Clusters(recipe.dedup),  # one survivor per neighbourhood
        Survivors(recipe.dedup),  # kept documents minus duplicates -> text shards
    ]
