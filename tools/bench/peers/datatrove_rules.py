"""datatrove's filters on documents, one after another as in a pipeline of its own; runs in the peers' environment.

    python datatrove_rules.py DOCUMENTS.jsonl fineweb2|fineweb|verdicts

`fineweb2`: the steps and values of fineweb-2's configs/cmn_Hani.yml, without those that need downloads. `fineweb`: the
English pipeline as it comes, told only that the language is Chinese. Reading, writing and loading the dictionary are
not timed; a document that one step dropped costs the next ones nothing. `verdicts`: whether each step of fineweb2 keeps
each document.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.pipeline.formatters import PIIFormatter
from datatrove.utils.word_tokenizers import load_word_tokenizer

LANGUAGE = "cmn_Hani"
STOP_WORDS = list("的年在月是和日了於·為有被人中为他與後也而由")
PARTS = 3  # timed apart, so that a median can be told


def steps(recipe: str) -> list[Any]:
    """The pipeline's steps, new ones for each part."""
    if recipe == "fineweb":
        return [
            GopherRepetitionFilter(language=LANGUAGE),
            C4QualityFilter(filter_no_terminal_punct=False, language=LANGUAGE),
            GopherQualityFilter(language=LANGUAGE),
            FineWebQualityFilter(language=LANGUAGE),
            PIIFormatter(),
        ]
    return [
        GopherRepetitionFilter(
            language=LANGUAGE,
            dup_line_frac=0.287,
            dup_para_frac=0,
            dup_line_char_frac=0,
            dup_para_char_frac=0,
            top_n_grams=((2, 0.256), (3, 0.201), (4, 0.171)),
            dup_n_grams=((5, 0.198), (6, 0.182), (7, 0.167), (8, 0.154), (9, 0.140), (10, 0.127)),
        ),
        FineWebQualityFilter(
            language=LANGUAGE, short_line_thr=999, char_duplicates_ratio=0.1, line_punct_thr=0.106, new_line_ratio=0.178
        ),
        GopherQualityFilter(
            language=LANGUAGE,
            min_avg_word_length=1,
            max_avg_word_length=5,
            max_non_alpha_words_ratio=0.735,
            stop_words=STOP_WORDS,
            min_stop_words=2,
        ),
        PIIFormatter(),
    ]


def main(path: str, recipe: str) -> None:
    """Print documents, bytes, CPU seconds, the median rate, kept documents and reasons."""
    with open(path, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    if recipe == "verdicts":
        filters = steps("fineweb2")[:-1]
        kept = [[step.filter(Document(text=text, id="")) is True for text in texts] for step in filters]
        print(json.dumps(dict(zip(("repetition", "lines", "words"), kept, strict=True))))
        return
    load_word_tokenizer(LANGUAGE).word_tokenize("预热一下分词器")
    rates, seconds, num_kept = [], 0.0, 0
    reasons: Counter[str] = Counter()
    for part in range(PARTS):
        documents = [Document(text=text, id=str(row)) for row, text in enumerate(texts[part::PARTS])]
        size = sum(len(document.text.encode()) for document in documents)
        pipeline = steps(recipe)
        data = iter(documents)
        start = time.process_time()
        for step in pipeline:
            data = step.run(data)
        num_kept += sum(1 for _ in data)
        spent = time.process_time() - start
        seconds += spent
        rates.append(size / 1e6 / spent)
        for step in pipeline:
            for name, stat in step.stats.stats.items():
                if name.startswith("dropped_"):
                    reasons[f"{step.name}: {name[8:]}"] += int(stat.total)
    found: dict[str, Any] = {"documents": len(texts), "bytes": sum(len(text.encode()) for text in texts)}
    found["cpu_seconds"] = seconds
    found |= {"mb_a_second": statistics.median(rates), "kept": num_kept, "reasons": dict(reasons.most_common(5))}
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
