"""The pipeline, top to bottom: which stages there are and the order documents travel in.

    inputs -> extract -> filter -> signatures -> buckets -> members -> candidates -> components -> survivors -> clusters
           -> text [-> mixture]

Each stage reads the manifests of earlier ones and writes a folder of committed files; shards stay one to one from
`extract` to `text`, so a document's place (shard, row) is its address in every sidecar. The tokenizer package goes on
from `text`.
"""

from __future__ import annotations

from collections.abc import Sequence

from corpus.dedup import (
    BucketsStage,
    CandidatesStage,
    ClustersStage,
    ComponentsStage,
    MembersStage,
    SignaturesStage,
    SurvivorsStage,
    TextStage,
)
from corpus.dedup.contamination.stage import ContaminationStage
from corpus.dedup.near.earlier import EarlierBuilds
from corpus.dedup.passages.line_stages import LineCountsStage, LineKeysStage, RepeatedLinesStage
from corpus.dedup.passages.substring_stages import CutTextStage, PassageKeysStage, PassageRanksStage, SubstringsStage
from corpus.engine.config import check_resources
from corpus.engine.stage import Stage
from corpus.filters.stage import FilterStage
from corpus.mixture import MixtureStage, MixtureTotalsStage
from corpus.recipe import Recipe
from corpus.sources.packing import Source
from corpus.sources.stage import ExtractStage

OPTIONAL_STAGES = tuple(  # which a recipe may do without
    stage.name
    for stage in (
        *(LineKeysStage, LineCountsStage, RepeatedLinesStage),
        ContaminationStage,
        *(PassageKeysStage, PassageRanksStage, SubstringsStage),
        *(MixtureTotalsStage, MixtureStage),
    )
)
TOKENIZER_STAGES = ("sources", "shares", "sample", "tokenizer", "tokens")  # of the package that goes on from `text`


def check_recipe_resources(recipe: Recipe, where: str) -> None:
    """Refuse [resources.STAGE] of a stage that does not exist; raises `UsageError`."""
    check_resources(recipe.resources, [*(stage.name for stage in stages(recipe, ())), *TOKENIZER_STAGES], where)


def stages(recipe: Recipe, sources: Sequence[Source]) -> list[Stage]:
    """The stages of a corpus build, in order; `sources` hold the files to read, each once."""
    lines = recipe.dedup.repeated_lines
    cutting = [LineKeysStage(lines), LineCountsStage(lines), RepeatedLinesStage(lines)] if lines else []
    documents = "repeated_lines" if lines else "filter"
    items = recipe.dedup.contamination
    clean = [ContaminationStage(items, documents)] if items else []
    documents = "contamination" if items else documents
    mixing = [MixtureTotalsStage(recipe.mixture), MixtureStage(recipe.mixture)] if recipe.mixture else []
    earlier = EarlierBuilds(recipe.dedup)
    copied = recipe.dedup.substrings
    passages = (
        [PassageKeysStage(copied, documents), PassageRanksStage(), SubstringsStage(copied, documents)] if copied else []
    )
    survivors = CutTextStage if copied else TextStage
    return [
        ExtractStage(tuple(sources), recipe.input, recipe.extract, recipe.text),  # records -> documents
        FilterStage(recipe.filter, recipe.own_filters(sources)),  # edit lines, measure, decide, mask -> kept documents
        *cutting,  # lines that stand on many pages of a site -> documents without them
        *clean,  # documents that hold no evaluation item
        SignaturesStage(recipe.dedup, documents),  # exact keys and MinHash per document, band keys by range
        BucketsStage(earlier=earlier),  # documents that share a key
        MembersStage(recipe.dedup, earlier=earlier),  # those with their signatures, by range
        CandidatesStage(recipe.dedup, earlier=earlier),  # compared -> edges
        ComponentsStage(),  # those that hang together -> groups of edges
        SurvivorsStage(),  # one survivor per neighbourhood
        ClustersStage(recipe.dedup, earlier=earlier),  # each shard's duplicates
        *passages,  # documents without what they copy from better ones
        survivors(recipe.dedup, documents),  # kept documents minus duplicates -> text shards
        *mixing,  # how often the tokenizer takes each
    ]
