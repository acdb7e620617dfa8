#!/bin/sh
# Build a corpus on a Ray cluster: the driver runs on the head, the tasks on every machine.
#
#   RECIPE=my.toml INPUT='s3://crawl/2026-11/*.warc.gz' OUT=s3://corpus/my tools/ray/submit.sh
#
# Needs `pip install 'ray[default]'` here and on the head (job submission and the dashboard), and RAY_ADDRESS, for
# example http://10.0.0.1:8265. Tasks appear in the dashboard as STAGE/TASK, their errors in their logs; the table of
# failures is the driver's. A lost driver, machine or worker costs the tasks under way: submit the same job again.
# What a task asks of a machine stands in the recipe:  [resources.filter]  cpus = 1  memory_gb = 1.5
set -eu
: "${RECIPE:?}" "${INPUT:?}" "${OUT:?}"

ray job submit --working-dir . -- sh -c '
  python -m corpus run --recipe "$1" --input "$2" --out "$3" --executor ray --address auto &&
  python -m tokenizer run --recipe "$1" --out "$3" --executor ray --address auto
' sh "$RECIPE" "$INPUT" "$OUT"
