"""Train corpus/filters/quality/kinds.model, and judge it by sources that it never saw.

    python -m tools.train_kinds --train train.jsonl --judge judge.jsonl --out corpus/filters/quality/kinds.model

Both files have {"text", "kind", "source"} a line (docs/quality.md says which rows they are). Weights come from the
first alone, with spoiled copies of its good texts: misread characters, broken encodings. The second sets what has to
be right for real pages and takes few numbers, a temperature and a bias a class: for the table on stdout those of one
half of its sources, for the other half; for the file those of all. A source of the second is never one of the first.

With `--fasttext` the same rows train fastText's classifier, its biases are set in the same way, and both are timed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.engine.cli import run_command
from corpus.engine.errors import UsageError
from corpus.filters.quality.model import GOOD, KINDS, Model, softmax
from corpus.filters.statistic import Floats, Ints
from corpus.quality.assessment import assess, log_loss
from corpus.quality.training import Labelled, Options, fit, prepare, probabilities

OPTIONS = Options(orders=(1, 2), bits=16, inverse_penalty=300.0)
MIN_JUDGED = 50  # documents of a class that counts in the mean
SHARES_KEPT = (0.98, 0.99, 0.995)  # of good documents
RESAMPLES = 1000
RIDGE = 1e-3  # keeps the bias of a class without documents where it is


SPOILED = 500  # texts of each kind
MISREAD = "口日目曰亻彳冫氵厂广丶丿乙匕卜"  # what an OCR engine makes of half a character
SPECKS = "·|'`^_~.,1lI丨/\\"
LEFTOVERS = (
    "{{ item.title }}", "<% if user %>", "${row.name}", "<?php echo $v; ?>", "[[文件:a.jpg|thumb]]", "&nbsp;&nbsp;",
    "\\u4e2d\\u6587", "function(){return false;}", '<div class="box">', '@section("content")',
    '|-| style="width:20px"|',
)  # fmt: skip


class Rows(NamedTuple):
    """Documents as the filter sees them, their kinds' places in KINDS, and their sources."""

    texts: list[str]
    labels: Ints
    sources: npt.NDArray[np.str_]

    def select(self, chosen: npt.NDArray[np.bool_]) -> Rows:
        """Some of them."""
        return Rows([self.texts[row] for row in np.flatnonzero(chosen)], self.labels[chosen], self.sources[chosen])

    @property
    def labelled(self) -> Labelled:
        """For the trainer."""
        return Labelled(self.texts, self.labels.tolist())


def read(path: Path) -> Rows:
    """The rows of a file; a text that the filter would see as empty is left out."""
    texts, labels, sources = [], [], []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        row = json.loads(line)
        if row["kind"] not in KINDS:
            raise UsageError(f"{path}:{number}: no kind {row['kind']!r}; it is one of {', '.join(KINDS)}.")
        for text in prepare([row["text"]]):
            texts.append(text)
            labels.append(KINDS.index(row["kind"]))
            sources.append(row["source"])
    return Rows(texts, np.array(labels, np.int64), np.array(sources))


def spoil(rows: Rows, seed: int) -> Rows:
    """SPOILED good texts as an OCR engine or a wrong encoding leaves them, of each."""
    chance = random.Random(seed)
    good = [text for text, label in zip(rows.texts, rows.labels.tolist(), strict=True) if KINDS[label] == GOOD]
    good = [text for text in good if sum(map(is_han, text)) > 100]
    every_han = [one for text in good for one in text[:300] if is_han(one)]
    spoilt = {"ocr_noise": _misread, "garbled": _garble}
    texts = [
        _spoil(chance.choice(good)[: chance.choice((200, 500, 1500))], number, chance, every_han)
        for _spoil in spoilt.values()
        for number in range(SPOILED)
    ]
    labels = np.repeat([KINDS.index(kind) for kind in spoilt], SPOILED)
    return Rows(list(prepare(texts)), labels, np.full(len(texts), "spoiled"))


def is_han(character: str) -> bool:
    """Of the block of unified ideographs."""
    return "\u4e00" <= character <= "\u9fff"


def _misread(text: str, number: int, chance: random.Random, every_han: list[str]) -> str:
    rate, out = chance.choice((0.03, 0.06, 0.1, 0.15)), ""
    for one in text:
        if is_han(one) and (draw := chance.random()) < 1.5 * rate:
            near = chr(min(0x9FFF, max(0x4E00, ord(one) + chance.randint(-3, 3))))
            wrong = (near, chance.choice(every_han), chance.choice(MISREAD))
            one = chance.choice(wrong) if draw < rate else chance.choice((chance.choice(SPECKS) + one, one + " "))
        elif one in "，。、；：？！":
            one = chance.choice((one, one, one, ",", ".", "，", "·", "'", " ", ""))
        out += one + "\n" * (chance.random() < 0.02)
    if number % 3 == 0:
        return "".join(one + " " * (is_han(one) and chance.random() < 0.5) for one in out)
    return "\n".join(re.findall(".{1,24}", out.replace("\n", ""))) if number % 3 == 1 else out


def _garble(text: str, number: int, chance: random.Random, every_han: list[str]) -> str:
    utf8, gb = text.encode(), text.encode("gb18030")
    match number % 7:
        case 0:
            return utf8.decode("gbk", "ignore")
        case 1:
            return utf8.decode("gb18030", "replace")
        case 2:
            return gb.decode("big5", "replace")
        case 3:
            return gb.decode("utf-8", "replace").encode().decode("gbk", "ignore")  # 锟斤拷
        case 4:
            return "".join(
                chance.choice(every_han) if chance.random() < 0.7 else chance.choice("，。 \n；") for _ in text
            )
        case 5:
            return "\n".join(line + chance.choice(LEFTOVERS) for line in re.findall("[^。！？\n]+.?", text))
    odd = [(0x4E00, 0x9FA5), (0x3400, 0x4DB5), (0xE000, 0xE200), (0xFFFD, 0xFFFD)]
    return "".join(one if chance.random() < 0.7 else chr(chance.randint(*chance.choice(odd))) for one in text)


def halves(rows: Rows, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows are of the first half: whole sources, so dealt that each class is about even."""
    names = sorted(set(rows.sources.tolist()))
    np.random.default_rng(seed).shuffle(names)
    members = {name: np.bincount(rows.labels[rows.sources == name], minlength=len(KINDS)) for name in names}
    scale = 1 / np.maximum(np.bincount(rows.labels, minlength=len(KINDS)), 1)
    gap, first = np.zeros(len(KINDS)), set()
    for name in sorted(names, key=lambda name: -int(members[name].sum()) // 8):
        step = members[name] * scale
        is_first = float(np.abs(gap + step).sum()) < float(np.abs(gap - step).sum())
        gap += step if is_first else -step
        first |= {name} if is_first else set()
    return np.isin(rows.sources, list(first))


def calibrate(logits: Floats, labels: Ints) -> tuple[float, Floats]:
    """The inverse temperature and the biases (float64[classes], nats) of least log loss.

    A class counts as the root of its documents: alike, good texts would be taken for bad ones that are much rarer; each
    document alike, no text would be called by the name of a rare kind.
    """
    from scipy.optimize import minimize

    count = logits.shape[1]
    weights = np.maximum(np.bincount(labels, minlength=count), 1)[labels] ** -0.5
    weights /= weights.sum()
    right = np.eye(count)[labels]

    def loss(values: Floats) -> tuple[float, Floats]:
        found = softmax(values[0] * logits + values[1:])
        error = (found - right) * weights[:, None]
        value = float(-(weights * np.log(np.maximum(found[right == 1], 1e-15))).sum())
        slope = np.concatenate(([(error * logits).sum()], error.sum(axis=0)))
        slope[1:] += RIDGE * values[1:]
        return value + RIDGE / 2 * float((values[1:] ** 2).sum()), slope

    values = minimize(loss, np.concatenate(([1.0], np.zeros(count))), jac=True, method="L-BFGS-B").x
    return float(values[0]), np.asarray(values[1:], np.float64)


def cross_calibrated(logits: Floats, rows: Rows, seed: int) -> Floats:
    """float64[rows, classes]: probabilities of each half, calibrated on the other."""
    first = halves(rows, seed)
    found = np.empty_like(logits)
    for fitted, judged in ((first, ~first), (~first, first)):
        scale, bias = calibrate(logits[fitted], rows.labels[fitted])
        found[judged] = softmax(scale * logits[judged] + bias)
    return found


def table(found: Floats, rows: Rows) -> str:
    """F1 and recall of each kind with 95 % intervals over sources drawn again, their mean, and what thresholds do."""
    names, members = np.unique(rows.sources, return_inverse=True)
    chance = np.random.default_rng(1)
    result = assess(found, rows.labels, KINDS)
    counted = [entry.name for entry in result.classes if entry.documents >= MIN_JUDGED]
    by_source = [np.flatnonzero(members == place) for place in range(len(names))]
    drawn: list[tuple[Floats, float]] = []
    for _ in range(RESAMPLES):
        chosen = np.concatenate([by_source[place] for place in chance.integers(0, len(names), len(names))])
        scores = np.nan_to_num([entry.f1 for entry in assess(found[chosen], rows.labels[chosen], KINDS).classes])
        drawn.append((scores, float(np.mean([scores[KINDS.index(name)] for name in counted or KINDS]))))
    low, high = np.percentile([scores for scores, _ in drawn], [2.5, 97.5], axis=0)
    lines = [f"{'kind':<20}{'texts':>6}{'sources':>9}{'precision':>11}{'recall':>8}{'F1':>7}  95 %"]
    for place, entry in enumerate(result.classes):
        sources = len(set(members[rows.labels == place].tolist()))
        lines.append(
            f"{entry.name:<20}{entry.documents:>6}{sources:>9}{entry.precision:>11.2f}{entry.recall:>8.2f}"
            f"{entry.f1:>7.2f}  {low[place]:.2f} to {high[place]:.2f}"
        )
    mean = np.mean([entry.f1 for entry in result.classes if entry.name in (counted or KINDS)])
    ends = np.percentile([value for _, value in drawn], [2.5, 97.5])
    lines.append(
        f"macro-F1 of the {len(counted)} kinds with {MIN_JUDGED} texts: {mean:.3f}, {ends[0]:.2f} to {ends[1]:.2f}"
    )
    lines.append(f"accuracy {result.accuracy:.3f}, calibration error {result.calibration_error:.3f}")
    score, good = found[:, KINDS.index(GOOD)], rows.labels == KINDS.index(GOOD)
    for share in SHARES_KEPT:
        threshold = float(np.quantile(score[good], 1 - share))
        removed = {
            name: float((score[rows.labels == place] < threshold).mean())
            for place, name in enumerate(KINDS)
            if name != GOOD and (rows.labels == place).any()
        }
        lines.append(
            f"score >= {threshold:.4f} keeps {share:.1%} of good and removes {(score[~good] < threshold).mean():.1%} "
            "of bad: " + ", ".join(f"{name} {value:.0%}" for name, value in removed.items())
        )
    return "\n".join(lines)


def fasttext_logits(training: Rows, judged: Rows) -> tuple[Floats, float]:
    """Log probabilities of fastText's classifier, which is trained on characters, and its seconds for the judged."""
    import fasttext

    def line(text: str) -> str:
        return " ".join(text.replace("\n", "↵").replace(" ", ""))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        path.write_text(
            "".join(
                f"__label__{label} {line(text)}\n" for text, label in zip(training.texts, training.labels, strict=True)
            )
        )
        model = fasttext.train_supervised(
            str(path), lr=0.5, epoch=25, wordNgrams=2, dim=64, bucket=200_000, minCount=2, thread=1, seed=1
        )
    lines = [line(text) for text in judged.texts]
    started = time.perf_counter()
    answers = [model.f.predict(text + "\n", -1, 0.0, "strict") for text in lines]
    seconds = time.perf_counter() - started
    logits = np.full((len(lines), len(KINDS)), -20.0)
    for row, answer in enumerate(answers):
        for value, label in answer:
            logits[row, int(label.removeprefix("__label__"))] = max(-20.0, float(np.log(max(value, 1e-9))))
    return logits, seconds


def calibrated(model: Model, training: Rows, rows: Rows) -> Model:
    """The model with temperature and biases of some rows."""
    logits = np.log(np.maximum(probabilities(model, rows.texts), 1e-300)) * model.header.temperature
    scale, shift = calibrate(logits, rows.labels)
    bias = np.array(model.header.bias) + (shift[1:] - shift[0]) / scale
    counts = np.bincount(rows.labels, minlength=len(KINDS)).tolist()
    trained = model.header.trained | {
        "documents": training.labelled.digest(),
        "calibrated": dict(zip(KINDS, counts, strict=True)),
        "calibration": rows.labelled.digest(),
    }
    update = {"bias": tuple(bias.tolist()), "temperature": 1 / scale, "trained": trained}
    return Model(model.header.model_copy(update=update), model.weights)


def run(arguments: argparse.Namespace) -> None:
    """Train, judge, write."""
    training, judged = read(arguments.train), read(arguments.judge)
    if both := set(training.sources.tolist()) & set(judged.sources.tolist()):
        raise UsageError(f"{sorted(both)[0]} is a source of both files: what trains cannot judge.")
    spoiled = spoil(training, arguments.seed)
    training = Rows(
        training.texts + spoiled.texts,
        np.concatenate((training.labels, spoiled.labels)),
        np.concatenate((training.sources, spoiled.sources)),
    )
    model = fit(training.labelled, training.labelled, KINDS, OPTIONS)
    started = time.perf_counter()
    found = probabilities(model, judged.texts)
    seconds = time.perf_counter() - started
    logits = np.log(np.maximum(found, 1e-300)) * model.header.temperature
    print(table(cross_calibrated(logits, judged, arguments.seed), judged))
    if arguments.fasttext:
        theirs, their_seconds = fasttext_logits(training, judged)
        size = sum(len(text.encode()) for text in judged.texts) / 1e6
        print(f"\nfastText, {their_seconds / size * 1e3:.1f} ms/MB; kinds.model {seconds / size * 1e3:.1f} ms/MB\n")
        print(table(cross_calibrated(theirs, judged, arguments.seed), judged))
    final = calibrated(model, training, judged)
    final.save(arguments.out)
    loss = log_loss(probabilities(final, judged.texts), judged.labels)
    print(f"\n{arguments.out}: {arguments.out.stat().st_size:,} bytes, {final.digest}; log loss, fitted, {loss:.3f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True, metavar="FILE")
    parser.add_argument("--judge", type=Path, required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seed", type=int, default=5, help="of halves and spoiled copies (default: %(default)s)")
    parser.add_argument("--fasttext", action="store_true", help="train and time fastText beside it")
    parser.set_defaults(command=run)
    return run_command("train_kinds", parser, arguments)


if __name__ == "__main__":
    sys.exit(main())
