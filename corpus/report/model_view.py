"""What the quality model saw in a document: probabilities of its classes, and the n-grams that weigh most.

The text is the one that was measured: that of the extract stage, edited again as the build's filter did; what the
filter kept has placeholders for personal data, which the model never saw. N-grams of personal data alone are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.filters.edits import edit
from corpus.filters.quality.model import READ_BYTES, Model, load_model
from corpus.filters.statistic import buffers
from corpus.recipe import recorded_models
from corpus.report import ledger
from corpus.report.distributions import SCORE
from corpus.report.summary import folders
from corpus.safe import mask, plain
from corpus.sources.packing import key_of

SHOWN = 5  # n-grams on each side
TOLERANCE = 1e-6  # of a score that is measured again


def scored(out: str, document: ledger.Document, measured: ledger.Event) -> ledger.Event | None:
    """What the model saw, or in words why nobody can tell any more; None where the filter had no model."""
    score = measured.values.get(SCORE, {}).get("value")
    if score is None or document.shard is None or document.row is None:
        return None
    stage = storage.read_json(storage.join(folders(out)[measured.stage].url, "stage.json"))
    own = stage.get("parameters", {}).get("filters", {})
    config = own.get(key_of(document.shard), stage.get("config", {}))
    try:
        model = _model(out, str(config.get("quality")))
        ((_, _, text),) = ledger.read_texts(out, [(document.shard, document.row)])
        edited, _ = edit(
            pa.array([text], pa.large_string()), config["edit"]["boilerplate_lines"], config["edit"]["script"]
        )
        values = _seen(model, edited, score)
    except WenhaiError as error:
        values = {"unknown": plain(str(error), 400)}
    return ledger.Event(measured.stage, "scored", values)


def shown(ngram: str) -> str:
    """An n-gram on paper: a space as a mark, what is invisible by its number.

    >>> shown(" 学\\x1b")
    '␣学\\\\x1b'
    """
    marked = ngram.replace(" ", "␣")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in marked)


def _model(out: str, digest: str) -> Model:
    """The build's model, where a file that its recipe names is still that one."""
    failures = []
    for path in recorded_models(out):
        try:
            model = load_model(path)
        except WenhaiError as error:
            failures.append(str(error))
            continue
        if model.digest == digest:
            return model
        failures.append(f"{path} is another one (sha256 {model.digest[:12]}, the build's {digest[:12]}).")
    raise WenhaiError(" ".join(["the build's model is not there any more.", *failures]))


def _seen(model: Model, texts: pa.LargeStringArray, score: float) -> Mapping[str, Any]:
    text, probabilities = texts[0].as_py(), model.measure(*buffers(texts))[0].tolist()
    if abs(probabilities[0] - score) > TOLERANCE:
        raise WenhaiError(f"this version edits the text otherwise: its score would be {probabilities[0]:.3g}.")
    public = model.contributions(mask(text))
    found = [(nats, ngram, times) for ngram, (times, nats) in model.contributions(text).items() if ngram in public]
    values: dict[str, Any] = {"classes": dict(zip(map(plain, model.classes), probabilities, strict=True))}
    for side, some in (("for", sorted(found)[: -SHOWN - 1 : -1]), ("against", sorted(found)[:SHOWN])):
        told = (one for one in some if one[0] and (one[0] > 0) == (side == "for"))
        values[side] = [{"ngram": shown(ngram), "count": times, "nats": nats} for nats, ngram, times in told]
    return values | ({"read_bytes": READ_BYTES} if len(text.encode()) > READ_BYTES else {})
