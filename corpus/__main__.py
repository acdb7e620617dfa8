"""The command line of the corpus package."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from corpus.engine.cli import Command, run_package

COMMANDS = {
    "run": Command(
        "corpus.commands.run",
        "build a dataset, or bring it up to date",
        """
python -m corpus run --recipe web_zh --input 'data/*.jsonl.zst' --out build/my
python -m corpus run --recipe my.toml --input crawl/ --out build/my --workers 8 --set dedup.threshold=0.75
python -m corpus run --recipe crawl_my.toml --out build/my        # a recipe with [crawl] begins with the crawl
python -m corpus run --recipe my.toml --input 's3://crawl/*.warc.gz' --out s3://corpus/my --executor ray
""",
    ),
    "crawl": Command(
        "corpus.crawl.command",
        "fetch web pages from seeds on, politely, into WARC files",
        """
python -m corpus crawl --seeds seeds.txt --contact me@example.org --out build/my/crawl
python -m corpus crawl --seeds https://example.org/ --contact https://example.org/bot --follow hosts --out build/one
python -m corpus crawl --config my.toml --max-pages 10000 --set crawl.budget.max_depth=5 --out build/my/crawl
python -m corpus crawl --config my.toml --since 7d --out build/my/crawl     # visit again what is older than a week
python -m corpus status build/my/crawl                                      # how far it is, from another shell
""",
    ),
    "commoncrawl": Command(
        "corpus.commoncrawl.command",
        "fetch captures or whole files of Common Crawl into WARC files",
        """
python -m corpus commoncrawl --crawl CC-MAIN-2026-43 --contact me@example.org --out build/cc --files 0:1 --limit 10000
python -m corpus commoncrawl --crawl CC-MAIN-2026-43 --base s3://commoncrawl/ --primary --host-suffix cn --out s3://b/cc
python -m corpus commoncrawl --crawl CC-MAIN-2026-43 --contact me@example.org --sample 0.01 --out build/cc --dry-run
python -m corpus commoncrawl --crawl CC-MAIN-2026-43 --contact me@example.org --whole wet --files 0:100 --out build/wet
""",
    ),
    "plan": Command(
        "corpus.commands.plan",
        "show what `run` would do and cost, and do nothing",
        """
python -m corpus plan --recipe my.toml --input 'crawl/*.warc.gz' --out build/my --set dedup.threshold=0.75
""",
    ),
    "prune": Command(
        "corpus.commands.prune",
        "list stage folders that no recipe needs, or remove them",
        """
python -m corpus prune build/my --recipe my.toml          # what no recipe needs; nothing is removed
python -m corpus prune build/my --recipe my.toml --yes
""",
    ),
    "filter": Command(
        "corpus.filters.adapters.command",
        "filter JSON lines from stdin, or files, without a build folder",
        """
python -m corpus filter --recipe web_zh < in.jsonl > kept.jsonl 2> summary.txt
python -m corpus filter --recipe web_zh --input 'data/*.parquet' --out kept --column content
""",
    ),
    "quality": Command(
        "corpus.quality.command",
        "have a server label documents, train a quality model for the filter, or try one",
        """
python -m corpus quality train --good good.jsonl --bad bad.jsonl --advertisement ads.jsonl --out quality.model
python -m corpus quality train --from-build build/my --out quality.model
python -m corpus quality label --input in.jsonl --endpoint http://127.0.0.1:8000/v1 --model NAME --out labels.jsonl
python -m corpus quality train --labels labels.jsonl --input in.jsonl --out quality.model
python -m corpus quality evaluate --model quality.model --good good.jsonl --bad bad.jsonl
""",
    ),
    "status": Command(
        "corpus.commands.status",
        "what is done, failed or missing below OUT",
        """
python -m corpus status build/my
""",
    ),
    "report": Command(
        "corpus.commands.report",
        "write OUT/report.html, report.zh.html, report.md and DATASET_CARD.md",
        """
python -m corpus report build/my
""",
    ),
    "mixture": Command(
        "corpus.commands.mixture",
        "show what the mixture takes of each source and bucket",
        """
python -m corpus mixture build/my
""",
    ),
    "retune": Command(
        "corpus.commands.retune",
        "show what other thresholds would keep, from stored statistics, without reading text",
        """
python -m corpus retune build/my --set filter.repetition.top_2_gram_ratio.max=0.18
python -m corpus retune build/my --unset filter.lines.label_char_ratio --write my.toml
""",
    ),
    "verify": Command(
        "corpus.commands.verify",
        "check every file of OUT against its manifest",
        """
python -m corpus verify build/my
""",
    ),
    "explain": Command(
        "corpus.commands.explain",
        "tell the fate of one document",
        """
python -m corpus explain build/my https://example.org/page.html
python -m corpus explain build/my '00003.jsonl.gz:offset 1234' --json
python -m corpus explain build/my https://example.org/page.html --lines --input 'crawl/*.warc.gz'
""",
    ),
    "ledger": Command(
        "corpus.commands.ledger",
        "count or list documents by how they ended, with DuckDB",
        """
python -m corpus ledger build/my --group source
python -m corpus ledger build/my --group source,rule --where "stage = 'filter'"
python -m corpus ledger build/my --where "rule = 'quality.score' AND value > 0.4" --columns id,value,url --limit 20
python -m corpus ledger build/my --where "kind = 'error'" --format csv --output errors.csv
""",
    ),
    "diff": Command(
        "corpus.commands.diff",
        "show which documents another build keeps or drops",
        """
python -m corpus diff build/monday build/tuesday
python -m corpus diff build/monday build/tuesday --format parquet --output changed.parquet
""",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    return run_package("corpus", "Turn Chinese text into a clean dataset.", COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(main())
