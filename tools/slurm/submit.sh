#!/bin/sh
# `make pretrain CLUSTER=slurm`: submits train.sbatch to Slurm, and says what was submitted and how to watch it.
#
#   CLUSTER=slurm NODES=4 GPUS=8 tools/slurm/submit.sh --config yuan-13b --data /scratch/my --out /scratch/my-13b
#
# NODES, GPUS (of a node; 0 for none), NPROC (ranks of a node without GPUs), CPUS (of a rank), PARTITION and TIME may be empty;
# sbatch reads more from its own variables, as in SBATCH_ACCOUNT=me.
set -eu
if [ "${CLUSTER:?}" != slurm ]; then
  echo "CLUSTER=$CLUSTER: only slurm is known. Elsewhere start torchrun on each node; docs/cluster.md has the command." >&2
  exit 2
fi
if ! command -v sbatch > /dev/null; then
  echo "CLUSTER=slurm: there is no sbatch here. Run this on a login node of the cluster, or leave CLUSTER out to train on this machine." >&2
  exit 2
fi

out= previous=
for word; do
  [ "$previous" = --out ] && out=$word
  previous=$word
done
mkdir -p "${out:?}"
gpus=${GPUS:-8}
if [ "$gpus" = 0 ]; then ranks=${NPROC:-1}; else ranks=$gpus; fi
log="$(cd "$out" && pwd)/slurm-%j.log"
job=$(sbatch --parsable --nodes="${NODES:-1}" --ntasks-per-node="$ranks" --gpus-per-node="$gpus" \
  ${PARTITION:+--partition="$PARTITION"} ${TIME:+--time="$TIME"} ${CPUS:+--cpus-per-task="$CPUS"} \
  --output="$log" "$(dirname "$0")/train.sbatch" "$@")
job=${job%%;*}  # the cluster's name may follow
cat << END
job $job: ${NODES:-1} nodes x $ranks ranks; it goes on by itself after preemption and the time limit
log:    $out/slurm-$job.log
watch:  squeue --jobs=$job; tail -F '$out/slurm-$job.log'
stop:   scancel $job                  (saves, and stays stopped; the same command resumes)
END
