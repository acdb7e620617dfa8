"""The builds that a new one is deduplicated against: `[dedup] earlier = ["build/2025", "s3://corpus/2026"]`.

Their committed signatures are read as further shards of the new build: nothing is signed again, no text of theirs is
opened, and what they cost is one pass over their band records (12 B x bands a document), plus keys and sketches of
those that share a key with a new document. Only documents that survived there take part. They outrank all new ones, are
never compared with each other, and nothing is written of them.

What survived is told by the drops of `clusters`: an excerpt that `substrings` took out behind it, whose text better
documents there hold, still stands against its copies, and with `keep = "all_with_size"` duplicates that were kept do
not.

To meet what survived is enough: an exact copy of a document that was dropped has its very signature, and so meets what
dropped it. A build whose documents fell for those of a still earlier one therefore needs that one beside it, and the
list is refused without it.

A build is known by a digest of its signatures and its drops: where it lies does not matter, and a list in another order
is the same list. Of a build that later ones name, `run.json`, `signatures-*` and `clusters-*` must stay; `corpus prune`
removes neither, because `run.json` names them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.dedup.config import DedupConfig
from corpus.dedup.near.clusters import BUILD_DTYPE
from corpus.dedup.near.signing import SignaturesStage
from corpus.dedup.records import Array, Ordinals, cuts_of, map_array, pick
from corpus.engine import durable, storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.manifest import MANIFEST_NAME
from corpus.engine.run import RUN_NAME, read_run
from corpus.engine.stage import Folder
from corpus.engine.storage import File, join

NAME_DIGITS = 12  # of a build's digest, as clusters.BUILD_DTYPE
COUNT_PREFIX = "earlier."  # before the name of a build in the counts of `clusters`
STAGES = ("signatures", "clusters", "text")  # what makes a build complete; no file of the last is read
NEEDED = {"signatures": ("keys", "signatures", "bands"), "clusters": ("drops",)}


@dataclass(frozen=True)
class EarlierBuild:
    """One finished build: its OUT folder as the recipe has it, and the two stages that are read."""

    out: str
    signatures: Folder
    clusters: Folder

    @property
    def name(self) -> str:
        """What fates and counts call it."""
        return build_name(self.signatures.digest, self.clusters.digest)


@dataclass(frozen=True)
class EarlierBuilds:
    """The earlier builds of a recipe; opened when first asked for, so that all stages of a run see the same ones."""

    dedup: DedupConfig

    @cached_property
    def builds(self) -> tuple[EarlierBuild, ...]:
        """The builds by name, checked.

        Raises:
            WenhaiError: one is missing, not complete or damaged, was signed with other parameters, is listed twice, or
                was deduplicated against one that is not listed.
        """
        found = sorted((_open(url) for url in self.dedup.earlier), key=lambda build: build.name)
        for build in found:
            _check_signed(build, self.dedup)
        _check_together(found)
        return tuple(found)

    def manifests(self) -> tuple[File, ...]:
        """Both stages of every build, each as one input: a stage's fingerprint takes their digests."""
        return tuple(folder.file for build in self.builds for folder in (build.signatures, build.clusters))

    def config(self) -> dict[str, Any]:
        """What sets stages with earlier builds apart without opening them; nothing where there are none."""
        return {"earlier": len(self.dedup.earlier)} if self.dedup.earlier else {}

    def outs(self) -> dict[str, str]:
        """OUT folders by build name."""
        return {build.name: build.out for build in self.builds}


NO_EARLIER = EarlierBuilds(DedupConfig())


def check_earlier(dedup: DedupConfig, out: str) -> EarlierBuilds:
    """Open the earlier builds of a recipe before a run into `out` does anything.

    Raises:
        UsageError: `out` is one of them.
        WenhaiError: as `EarlierBuilds.builds`.
    """
    for url in dedup.earlier:
        if storage.real_url(url) == storage.real_url(out):
            raise UsageError(
                f"{url}: is --out itself, and cannot be an earlier build (dedup.earlier). Build into another folder, "
                "or "
                "take it out of the list."
            )
    earlier = EarlierBuilds(dedup)
    _ = earlier.builds
    return earlier


def build_name(signatures_digest: str, clusters_digest: str) -> str:
    """The name of a build, from the digests of its stages."""
    return durable.digest({"signatures": signatures_digest, "clusters": clusters_digest})[:NAME_DIGITS]


def surviving(parts: Sequence[Array], drops: File, num_documents: int) -> list[Array]:
    """Return the records of each part whose `row` did not fall in its own build."""
    stays = np.ones(num_documents, bool)
    stays[map_array(drops)["row"]] = False
    return [pick(part, np.flatnonzero(stays[part["row"]])) for part in parts]


@dataclass(frozen=True)
class Numbering:
    """Which build a document is of: a build's own come first, then those of the earlier ones."""

    bases: Ordinals  # the builds' first ordinals, and the number of documents
    names: npt.NDArray[np.bytes_]  # of the builds, empty for the one being made

    @classmethod
    def of(cls, signatures: Folder, earlier: Sequence[EarlierBuild]) -> Numbering:
        """The numbering of a build with these signatures."""
        signed = [signatures, *(build.signatures for build in earlier)]
        documents = [sum(file.rows for file in folder.files("keys")) for folder in signed]
        return cls(cuts_of(np.array(documents, np.int64)), np.array(["", *(b.name for b in earlier)], BUILD_DTYPE))

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Numbering:
        """The numbering that a task was given."""
        return cls(np.array(params["builds"], np.int64), np.array(params["names"], BUILD_DTYPE))

    def params(self) -> dict[str, Any]:
        """As parameters of a task."""
        return {"builds": self.bases.tolist(), "names": self.names.astype("U").tolist()}

    def builds(self, ordinals: Ordinals) -> npt.NDArray[np.bytes_]:
        """Return the name of the build that each document stands in."""
        return self.names[np.searchsorted(self.bases, ordinals, side="right") - 1]

    def count(self, builds: npt.NDArray[np.bytes_]) -> dict[str, int]:
        """How many documents have their survivor in each earlier build, as counts of the stage `clusters`."""
        return {COUNT_PREFIX + str(name, "ascii"): int((builds == name).sum()) for name in self.names[1:]}


def _open(url: str) -> EarlierBuild:
    out = url if storage.is_remote(url) else os.path.abspath(storage.local_path(url))
    if not storage.exists(join(out, RUN_NAME)):
        raise WenhaiError(
            f"{url}: no build stands here, but dedup.earlier lists it. Give the OUT folder of a finished run, or take "
            "it "
            "out of the list."
        )
    entries = read_run(out)["stages"]
    if missing := [name for name in STAGES if name not in entries]:
        raise WenhaiError(
            f"{url}: stage {missing[0]!r} is not complete, so it cannot be an earlier build (dedup.earlier). Finish "
            "its "
            "run first."
        )
    folders = {name: _open_stage(url, join(out, entries[name]["folder"]), kinds) for name, kinds in NEEDED.items()}
    return EarlierBuild(url, folders["signatures"], folders["clusters"])


def _open_stage(url: str, folder: str, kinds: Sequence[str]) -> Folder:
    """A stage whose files are all in place."""
    present, opened = storage.sizes(folder), Folder.find(folder)
    if opened is not None:
        files = [file for kind in kinds for file in opened.files(kind)]
        lost = [file.url for file in files if present.get(file.url.removeprefix(folder + "/")) != file.bytes]
        if not lost:
            return opened
    else:
        lost = [join(folder, MANIFEST_NAME)]
    raise WenhaiError(
        f"{lost[0]}: missing or of another size, but dedup.earlier lists the build {url}. Run that build's command "
        "again, "
        "or put its folder back: the signatures-* and clusters-* folders of an earlier build must stay."
    )


def _check_signed(build: EarlierBuild, dedup: DedupConfig) -> None:
    mine: dict[str, Any] = {"stage version": SignaturesStage.version} | SignaturesStage(dedup).config()
    parts = storage.read_json(join(build.signatures.url, "stage.json"))
    theirs = {"stage version": parts.get("version")} | parts.get("config", {})
    for side in (mine, theirs):
        side.pop("ranks", None)  # earlier builds outrank whatever theirs were
    differing = [
        f"{key} {theirs.get(key)} there, {mine.get(key)} here"
        for key in mine | theirs
        if theirs.get(key) != mine.get(key)
    ]
    if differing:
        raise WenhaiError(
            f"{build.out}: its documents were signed otherwise ({'; '.join(differing)}), so they cannot be compared "
            "(dedup.earlier). Give the recipe its parameters under [dedup], or run that build again with this recipe's."
        )


def _check_together(builds: Sequence[EarlierBuild]) -> None:
    """No build twice, and none without those it was deduplicated against."""
    for one, other in itertools.pairwise(builds):
        if one.name == other.name:
            raise WenhaiError(f"{one.out} and {other.out}: the same build, listed twice in dedup.earlier. Keep one.")
    listed = {folder.digest for build in builds for folder in (build.signatures, build.clusters)}
    for build in builds:
        inputs = storage.read_json(join(build.clusters.url, "stage.json")).get("inputs", [])
        if any(digest not in listed for _, _, digest in inputs):
            raise WenhaiError(
                f"{build.out}: was itself deduplicated against an earlier build that dedup.earlier does not list (or "
                "has "
                "another state of). List that one too; if it was run again since, run this one again first."
            )
