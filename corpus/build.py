"""The pipeline, top to bottom: which stages there are and the order documents travel in.

    inputs -> extract -> filter -> signatures -> buckets -> members -> candidates -> clusters -> text [-> mixture]

Each stage reads the manifests of earlier ones and writes a folder of committed files; shards stay one to one from
`extract` to `text`, so a document's place (shard, row) is its address in every sidecar. The tokenizer package goes on
from `text`.
"""

from __future__ import annotations

from collections.abc import Sequence

from corpus.dedup import Buckets, Candidates, Clusters, Members, Signatures, Survivors
from corpus.dedup.contamination.stage import Contamination
from corpus.dedup.near.earlier import EarlierBuilds
from corpus.dedup.passages.line_stages import LineCounts, LineKeys, RepeatedLines
from corpus.dedup.passages.substring_stages import CutSurvivors, PassageKeys, PassageRanks, Substrings
from corpus.engine.config import check_resources
from corpus.engine.stage import Stage
from corpus.engine.storage import File
from corpus.filters.stage import Filtering
from corpus.mixture import Mixture, MixtureTotals
from corpus.recipe import Recipe
from corpus.sources.stage import Extract

OPTIONAL_STAGES = tuple(  # which a recipe may do without
    stage.name
    for stage in (
        *(LineKeys, LineCounts, RepeatedLines),
        Contamination,
        *(PassageKeys, PassageRanks, Substrings),
        *(MixtureTotals, Mixture),
    )
)
TOKENIZER_STAGES = ("sources", "shares", "sample", "tokenizer", "tokens")  # of the package that goes on from `text`


def check_recipe_resources(recipe: Recipe, where: str) -> None:
    """Refuse [resources.STAGE] of a stage that does not exist; raises `UsageError`."""
    check_resources(recipe.resources, [*(stage.name for stage in stages(recipe, ())), *TOKENIZER_STAGES], where)


def stages(recipe: Recipe, inputs: Sequence[File]) -> list[Stage]:
    """The stages of a corpus build, in order; `inputs` are the files to read, each once."""
    lines = recipe.dedup.repeated_lines
    cutting = [LineKeys(lines), LineCounts(lines), RepeatedLines(lines)] if lines else []
    documents = "repeated_lines" if lines else "filter"
    items = recipe.dedup.contamination
    clean = [Contamination(items, documents)] if items else []
    documents = "contamination" if items else documents
    mixing = [MixtureTotals(recipe.mixture), Mixture(recipe.mixture)] if recipe.mixture else []
    earlier = EarlierBuilds(recipe.dedup)
    copied = recipe.dedup.substrings
    passages = [PassageKeys(copied, documents), PassageRanks(), Substrings(copied, documents)] if copied else []
    survivors = CutSurvivors if copied else Survivors
    return [
        Extract(tuple(inputs), recipe.sources, recipe.extract),  # records -> documents; bad records end here
        Filtering(recipe.filter),  # edit lines, measure, decide, mask -> kept documents
        *cutting,  # lines that stand on many pages of a site -> documents without them
        *clean,  # documents that hold no evaluation item
        Signatures(recipe.dedup, documents),  # exact keys and MinHash per document, band keys by range
        Buckets(earlier=earlier),  # documents that share a key
        Members(recipe.dedup, earlier=earlier),  # those with their signatures, by range
        Candidates(recipe.dedup, earlier=earlier),  # compared -> edges
        Clusters(recipe.dedup, earlier=earlier),  # one survivor per neighbourhood
        *passages,  # documents without what they copy from better ones
        survivors(recipe.dedup, documents),  # kept documents minus duplicates -> text shards
        *mixing,  # how often the tokenizer takes each
    ]
