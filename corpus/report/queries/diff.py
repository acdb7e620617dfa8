"""`corpus diff`: which documents end otherwise in another build, by their ids. 15 million in each take two minutes."""

from __future__ import annotations

from dataclasses import replace

from corpus.report.queries import KEPT
from corpus.report.queries.ask import database
from corpus.report.queries.output import Target, print_table

EXAMPLES = 3  # of each change, in a table
# A record that was read twice has one id: the first of its ends in A is compared with the first in B, and so on.
ENDS = f"* REPLACE (coalesce(rule, '{KEPT}') AS rule), row_number() OVER (PARTITION BY id ORDER BY rule, place) AS nth"
CHANGES = f"""
SELECT CASE WHEN b.nth IS NULL THEN 'only in A' WHEN a.nth IS NULL THEN 'only in B'
        WHEN b.rule = '{KEPT}' THEN 'newly kept' WHEN a.rule = '{KEPT}' THEN 'newly dropped'
        ELSE 'another rule' END AS change,
    id, a.rule AS rule_a, b.rule AS rule_b,
    coalesce(CASE WHEN b.rule = '{KEPT}' THEN b.bytes END, a.bytes, b.bytes) AS bytes,
    coalesce(b.source, a.source) AS source, coalesce(b.url, a.url) AS url, coalesce(b.place, a.place) AS place
FROM a FULL JOIN b USING (id, nth) WHERE a.rule IS DISTINCT FROM b.rule
"""
SUMS = """
SELECT change, rule_a, rule_b, count(*) AS documents, sum(bytes)::BIGINT AS bytes FROM changes
GROUP BY ALL ORDER BY change, documents DESC, rule_a, rule_b
"""


def diff(build_a: str, build_b: str, target: Target) -> None:
    """Write what changes from A to B: in a table the sums and some documents of each change, else a row a document.

    `target.limit` is of the documents of each change.

    Raises:
        UsageError: DuckDB is not installed.
        WenhaiError: a build has no ledger, or a file of it is damaged; no room on disk for what does not fit in memory.
    """
    limit = target.limit or (EXAMPLES if target.form == "table" else None)
    first = f"QUALIFY row_number() OVER (PARTITION BY change ORDER BY id) <= {limit}" if limit else ""
    with database() as (connection, read):
        for side, out in (("a", build_a), ("b", build_b)):
            read(out, ("id", "rule", "bytes", "source", "url", "place")).project(ENDS).create(side)
        connection.sql(CHANGES).create("changes")
        rows = connection.sql(f"FROM changes {first} ORDER BY change, id")
        if target.form != "table":
            replace(target, limit=None).write(rows)
            return
        for side, out in (("a", build_a), ("b", build_b)):
            ends = connection.sql(f"SELECT count(*), count(*) FILTER (rule = '{KEPT}') FROM {side}").fetchall()
            print("{} {}: {:,} documents, {:,} kept".format(side.upper(), out, *ends[0]))
        sums = connection.sql(SUMS)
        same = connection.sql("SELECT 'unchanged', (SELECT count(*) FROM a) - (SELECT count(rule_a) FROM changes)")
        changed, ((unchanged, documents),) = sums.fetchall(), same.fetchall()
        print()
        print_table(sums.columns, [*changed, (unchanged, None, None, documents, None)])
        if changed:
            print()
            shown = rows.project("change, id, rule_a, rule_b, place, url")
            print_table(shown.columns, shown.fetchall())
