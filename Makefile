# wenhai: from Chinese text to a dataset, and from a dataset to a GPT. `make` alone lists what there is.
# Every target sets itself up in .venv (once; the stamps remember) and is a few lines that call a command line.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(RUN) -m pip install -qq
TORCH := $(shell sed -n '/^torch==/p' constraints.txt)
# tests start some hundreds of processes: compiled once, modules are read from bytecode
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -q -n auto --maxprocesses 4 --dist loadfile

INPUT ?=
RECIPE ?= $(if $(INPUT),web_zh,demo)
# files of one's own: INPUT, or what a recipe of one's own names
own = $(or $(INPUT),$(filter %.toml,$(RECIPE)))
OUT ?= build/$(if $(own),corpus,demo$(if $(DEMO_NEWS),-news))
DATA ?= $(OUT)
CONFIG ?= demo
NPROC ?= $(or $(filter-out 0,$(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU')),2)
SOURCE = $(if $(own),$(INPUT),$(OUT)-input/demo-*)
STEPS ?=
SET ?=
MACHINE ?= $(if $(shell command -v nvidia-smi 2>/dev/null),,cpu)
DEVICES ?=
ARGS ?= $(if $(ASK),$(warning ASK is called ARGS now: the old name goes with the next version)$(ASK))
ARMS ?=
CLUSTER ?=
NODES ?= 1
GPUS ?= 8
PARTITION ?=
TIME ?=
SEEDS ?=
CONTACT ?=
CHECKPOINT ?= $(patsubst %/COMMIT.json,%,$(lastword $(sort $(wildcard $(RUN_DIR)/checkpoints/step-*/COMMIT.json))))
PROMPT ?=
EXAMPLES ?=
TUNED_DIR ?= $(RUN_DIR)-finetuned
TASKS ?=
RUN_DIR ?= $(if $(findstring ://,$(DATA)),build,$(DATA))/pretrain
SUBMIT = CLUSTER='$(CLUSTER)' NODES='$(NODES)' GPUS='$(GPUS)' NPROC='$(NPROC)' PARTITION='$(PARTITION)' TIME='$(TIME)' sh tools/slurm/submit.sh
TRAIN = $(if $(CLUSTER),$(SUBMIT),$(RUN) -m pretrain train --nproc $(NPROC))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup crawl crawl-demo corpus plan pretrain finetune generate evaluate ablate report run-report status verify test test-all faults bench check format clean distclean have-seeds have-data have-model have-arms

help:  ## list the targets and the variables
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo
	@awk 'BEGIN { FS = "^## " } /^## / { print "  " $$2 }' Makefile
## Variables (make TARGET NAME=value):
##   INPUT='data/*.jsonl.zst'  your own text, in any format of docs/inputs.md (default: what RECIPE=my.toml names, or the demo's, fetched)
##   RECIPE=web_zh|my.toml     what to keep and how (default: web_zh for your text, demo for the demo)
##   OUT=build/my              where the dataset goes (default: build/corpus, build/demo, build/demo-news)
##   SEEDS='URL... FILE...'    where `make crawl` begins: URLs, and files that hold one a line
##   CONTACT=you@example.org   whom the owners of crawled sites can write to; part of the crawler's name
##   WORKERS=4                 processes for `make corpus` (default: one a core)
##   DEMO_NEWS=1               the demo on a packaged set of web news instead of Debian's documentation
##   DATA=build/my             the dataset to train on (default: OUT)
##   CONFIG=demo|my.toml       the model and its training (default: demo)
##   NPROC=2                   training processes (default: one a GPU; 2 where there is none)
##   STEPS=2000                overrides training.num_steps
##   SET='a.b=1 c.d=2'         overrides other values of the training configuration
##   RUN_DIR=runs/a            the training run: checkpoints, metrics, logs (default: DATA/pretrain)
##   MACHINE=h100-80|my.toml   what `make plan` plans for (default: the GPUs here, or cpu; docs/planner.md)
##   DEVICES=2128              how many GPUs of it (default: one machine)
##   ARGS='--explain 1'        more options of `make plan`, of the tasks of `make evaluate`, and of `make ablate`
##   ARMS='a=build/a b=build/b' the builds that `make ablate` compares, the first one to all others
##   CLUSTER=slurm             submit the training to a cluster instead of running it here (docs/cluster.md)
##   NODES=4                   machines of the cluster (default: 1)
##   GPUS=4                    GPUs of each (default: 8; with 0, NPROC processes on each)
##   PARTITION=gpu             where its jobs run (default: the cluster's)
##   TIME=8:00:00              how long each job may; the next one goes on (default: 24 hours)
##   EXAMPLES=train.jsonl      what `make finetune` trains on: instructions, dialogues (docs/finetuning.md)
##   TUNED_DIR=runs/sft        its run (default: RUN_DIR-finetuned)
##   PROMPT='学而时习之'       what `make generate` continues (default: nothing, a new text)
##   TASKS=fewclue             a folder with the nine tasks of FewCLUE, for `make evaluate` (docs/evaluation.md)
##   CHECKPOINT=path/step-...  which model `make generate` and `make evaluate` take (default: the newest below RUN_DIR)
##   TORCH_INDEX=URL           take torch from another package index, for example one with CPU-only wheels
##   PYTHON=python3.12         the interpreter .venv is made from (3.11 or newer)
##   TEST='-k shards'          more arguments for pytest

# ------------------------------------------------------------------------------------------------------------- installing

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "wenhai needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>/dev/null || echo 'not there'). Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv module. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "== making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.corpus-stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "== installing the corpus tools into $(VENV) (about a minute; no torch)"
	@$(PIP) -e '.[corpus,documents,ledger]'
	@touch $@

$(VENV)/.pretrain-stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "== installing the training tools into $(VENV) ($(TORCH) from $(or $(TORCH_INDEX),the default index))"
	@$(if $(TORCH_INDEX),$(PIP) --no-deps --index-url '$(TORCH_INDEX)' '$(TORCH)')
	@$(PIP) -e '.[pretrain]'
	@touch $@

$(VENV)/.crawl-stamp: $(VENV)/.corpus-stamp
	@echo "== installing the crawler into $(VENV)"
	@$(PIP) -e '.[crawl]'
	@touch $@

$(VENV)/.dev-stamp: $(VENV)/.corpus-stamp $(VENV)/.crawl-stamp $(VENV)/.pretrain-stamp
	@echo "== installing the test tools into $(VENV)"
	@$(PIP) -e '.[dev]'
	@touch $@

setup: $(VENV)/.dev-stamp  ## install everything, tests included; the other targets install what they need by themselves

# ------------------------------------------------------------------------------------------------------------------ using

crawl: have-seeds $(VENV)/.crawl-stamp  ## fetch web pages from SEEDS on, politely, into WARC files below OUT; run again to resume
	@$(RUN) -m corpus crawl --seeds $(SEEDS) --contact '$(CONTACT)' --out '$(or $(filter-out build/demo,$(OUT)),build/corpus)/crawl'

crawl-demo: $(VENV)/.crawl-stamp  ## serve a web of our own on loopback, crawl it and make a dataset of it (build/crawl-demo)
	@$(RUN) -m tools.demo.crawl --out '$(or $(filter-out build/demo,$(OUT)),build/crawl-demo)'

corpus: $(VENV)/.corpus-stamp  ## text -> clean, deduplicated, tokenized dataset (the demo's text, or INPUT=)
	@$(RUN) -m tokenizer check --recipe '$(RECIPE)' > /dev/null  # a mistake is told before the work, not after
	@$(if $(own),,$(RUN) -m tools.demo.input --out '$(OUT)-input' $(if $(DEMO_NEWS),--news))
	@began=$$(mktemp); \
	$(RUN) -m corpus run --recipe '$(RECIPE)' $(if $(SOURCE),--input '$(SOURCE)') --out '$(OUT)' $(if $(WORKERS),--workers $(WORKERS)); code=$$?; \
	: a build that is whole, with files that need a look, goes on and says so again at the end; \
	[ $$code = 4 ] && [ '$(OUT)/recipe.json' -nt $$began ] || [ $$code = 0 ] || { rm $$began; exit $$code; }; rm $$began; \
	$(RUN) -m tokenizer run --recipe '$(RECIPE)' --out '$(OUT)' $(if $(WORKERS),--workers $(WORKERS)) && \
	$(RUN) -m corpus report '$(OUT)' > /dev/null && exit $$code

plan: $(VENV)/.pretrain-stamp  ## rank the layouts of CONFIG on DEVICES of a MACHINE that need not be there: time, memory, why
	@$(RUN) -m pretrain plan --config '$(CONFIG)' $(if $(MACHINE),--cluster '$(MACHINE)') $(if $(DEVICES),--gpus '$(DEVICES)') $(foreach pair,$(SET),--set '$(pair)') $(ARGS)

pretrain: have-data $(VENV)/.pretrain-stamp  ## dataset -> GPT, on NPROC processes or a cluster; run again to resume
	@$(TRAIN) --config '$(CONFIG)' --data '$(DATA)' --out '$(RUN_DIR)' $(if $(STEPS),--set training.num_steps=$(STEPS)) $(foreach pair,$(SET),--set '$(pair)')

finetune: have-model $(VENV)/.pretrain-stamp  ## train the trained GPT on EXAMPLES, on NPROC processes; run again to resume
	@test -n '$(EXAMPLES)' || { echo "fine-tuning needs examples, a JSON object a line: make finetune EXAMPLES=train.jsonl (docs/finetuning.md)" >&2; exit 2; }
	@$(RUN) -m pretrain finetune --checkpoint '$(CHECKPOINT)' $(foreach file,$(EXAMPLES),--examples '$(file)') --out '$(TUNED_DIR)' --nproc $(NPROC) $(foreach pair,$(SET),--set '$(pair)')

generate: have-model $(VENV)/.pretrain-stamp  ## let the trained GPT continue PROMPT
	@$(RUN) -m pretrain generate --checkpoint '$(CHECKPOINT)' --prompt '$(PROMPT)'

evaluate: have-model $(VENV)/.pretrain-stamp  ## bits per character of the trained GPT on held-out text; with TASKS, the nine tasks as well
	@$(RUN) -m pretrain evaluate --checkpoint '$(CHECKPOINT)' --data '$(DATA)'
	@$(if $(TASKS),$(RUN) -m pretrain tasks --checkpoint '$(CHECKPOINT)' --data '$(TASKS)' --out '$(RUN_DIR)/tasks/$(notdir $(CHECKPOINT))' --report '$(RUN_DIR)/tasks/$(notdir $(CHECKPOINT))/report.html' $(ARGS))

ablate: have-arms $(VENV)/.pretrain-stamp  ## the same small model on several builds (ARMS): did a filter help? run again to resume
	@$(RUN) -m pretrain ablate $(foreach arm,$(ARMS),--arm '$(arm)') --config '$(CONFIG)' --nproc $(NPROC) $(if $(STEPS),--steps $(STEPS)) $(foreach pair,$(SET),--set '$(pair)') --out '$(or $(filter-out build/demo,$(OUT)),build/ablation)' $(ARGS)

report: have-data $(VENV)/.corpus-stamp  ## draw report.html and report.md of a dataset: the funnel, every rule, samples
	@$(RUN) -m corpus report '$(DATA)'

run-report: $(VENV)/.pretrain-stamp  ## draw the page of a training run (RUN_DIR): loss, speed, memory, events
	@$(RUN) -m pretrain report '$(RUN_DIR)'

status: have-data $(VENV)/.corpus-stamp  ## how far each stage of a dataset is
	@$(RUN) -m corpus status '$(DATA)'

verify: have-data $(VENV)/.corpus-stamp  ## check every file of a dataset against its recorded sha256
	@$(RUN) -m corpus verify '$(DATA)'

have-seeds:
	@test -n '$(SEEDS)' -a -n '$(CONTACT)' || { echo "a crawl needs where to begin and whom to ask: make crawl SEEDS='https://example.org/ seeds.txt' CONTACT=you@example.org OUT=build/my" >&2; exit 2; }

have-data:
	@case '$(DATA)' in *://*) ;; *) test -e '$(DATA)/run.json';; esac || { echo "no dataset in '$(DATA)' (no run.json there). Make one: make corpus, or name yours: make $(MAKECMDGOALS) DATA=build/my" >&2; exit 2; }

have-arms:
	@test -n '$(ARMS)' || { echo "an ablation compares builds: make ablate ARMS='filtered=build/a unfiltered=build/b' ARGS='--tokens 600k --seeds 3'" >&2; exit 2; }

have-model:
	@test -n '$(CHECKPOINT)' || { echo "no trained model below '$(RUN_DIR)'. Train one: make pretrain DATA='$(DATA)', or name a checkpoint: make $(MAKECMDGOALS) CHECKPOINT=..." >&2; exit 2; }

# --------------------------------------------------------------------------------------------------------------- checking

test: $(VENV)/.dev-stamp  ## the quick tests, some seven minutes on two cores (no data from outside needed)
	@$(PYTEST) $(TEST)

test-all: $(VENV)/.dev-stamp  ## all tests: with the longer ones, the README in a fresh clone and the kill loops
	@$(PYTEST) -m '' $(TEST)

faults: $(VENV)/.dev-stamp  ## only the fault tests: kills, torn files, bad input
	@$(PYTEST) -m '' tests/faults $(TEST)

bench: have-data $(VENV)/.dev-stamp  ## how fast filters, signatures and encoding are on one core, beside what one would use instead
	@OMP_NUM_THREADS=1 $(RUN) -m tools.bench --data '$(DATA)'

check: $(VENV)/.dev-stamp  ## lint, format, types and import contracts
	@$(RUN) -m ruff check -q . && $(RUN) -m ruff format --check -q .
	@$(RUN) -m mypy
	@$(VENV)/bin/lint-imports --no-cache

format: $(VENV)/.dev-stamp  ## let ruff put the code in shape
	@$(RUN) -m ruff check -q --fix . ; $(RUN) -m ruff format .

clean:  ## remove caches (datasets under build/ stay)
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info && find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## remove caches, .venv and everything under build/
	@rm -rf $(VENV) build
