"""Training on a GPU, in one command: what to run whenever one is at hand. It prints Markdown for docs/gpu.md.

    python -m tools.bench.pretrain.gpu                         every section; about half an hour
    python -m tools.bench.pretrain.gpu --only parity speed     some of them
    python -m tools.bench.pretrain.gpu --tiny                  tiny shapes, on a CPU too: exercises the script only

| section | rows |
|---|---|
| parity | the first steps of three runs on the GPU beside the CPU's: loss and gradient norm |
| speed | bf16 and compile: a 1.7 B and a 7 B-class shape, two contexts, beside a plain loop of torch.compile and SDPA |
| masks | attention alone under documents and prefixes: a dense mask, what the model takes, plainly causal |
| asc22 | the 4.7 B shape of ASC22 with and without offload: hours for 1 B tokens, beside the team's 67.75 |
| host | host memory over 500 offloaded steps of the 1.7 B shape |
| loader | token shards on disk beside the same tokens in memory |
| loss | output matrix and loss of 8,192 tokens, forward and backward: dense, in chunks, torch's own (from 2.13 on) |

Each row is a process of its own, ended after `--seconds`: one that runs out of memory or time says so in its row and
leaves the others a clean device. TFLOP/s are the model's (6 N + 12 L H K T a token, attention counted whole, nothing
twice); MFU is that over the dense peak of `pretrain.hardware`. The 1.7 B shape is Megatron-LM's (24 layers, 2,304 wide,
24 heads; 2104.04473, table 1) and the other that of Llama 2 7 B with 12 of its 32 layers, which is what 80 GB hold with
AdamW in fp32; both with RMSNorm, rotary positions, SwiGLU and the plain loop's vocabulary. Megatron-LM says 408.8
TFLOP/s (41 %) for 1.7 B and 465.9 (47 %) for 7.1 B on H100 (model_table.png in its repository, context 4,096,
vocabulary 131,072).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from pretrain.config import RunConfig, load_config
from pretrain.hardware import device_name, peak_flops
from pretrain.model.attention import Attend, Dense, attention_for
from pretrain.model.attention_mask import Visibility
from pretrain.parallel.base import mesh
from pretrain.parallel.base.linear_cross_entropy import linear_cross_entropy_sum
from pretrain.parallel.base.tensor import ALONE
from pretrain.training.step import train_step
from pretrain.workload import memory
from pretrain.workload.flops import flops_per_token
from tools.bench.pretrain.plain_gpt import PlainGPT, PlainRun
from tools.bench.pretrain.random_run import configuration, merge_sections, random_run, random_tokens
from tools.bench.timing import status

Row = dict[str, Any]
Rows = Iterator[tuple[str, Row]]  # a name, and what was found
Cells = Callable[[Row], Sequence[str]]
Sections = Mapping[str, Mapping[str, Any]]

MFU_TARGETS = {2048: 0.50, 4096: 0.45}  # by context
ASC22_HOURS = 67.75  # for 1 B tokens on four V100 with offload: NCUSCC's page
WARM_UP = 3  # steps; the first of them compiles
HOST_STEPS = 500
LIMITS = {"fp32": (1e-5, 1e-4), "bf16": (5e-3, 5e-2)}  # of parity: relative difference of loss and of gradient norm

SMALL: Sections = {
    "model": {"num_layers": 2, "hidden_size": 64, "num_heads": 4, "vocab_size": 500, "padded_vocab_size": 512},
    "training": {"global_batch_size": 2, "micro_batch_size": 1},
}
SHAPES: dict[str, Sections] = {
    "1.7B": {
        "model": {"num_layers": 24, "hidden_size": 2304, "num_heads": 24, "ffn_hidden_size": 6144, "vocab_size": 51_200,
                  "padded_vocab_size": 51_200},
    },
    "7B-class, 12 layers": {
        "model": {"num_layers": 12, "hidden_size": 4096, "num_heads": 32, "ffn_hidden_size": 11_008,
                  "vocab_size": 32_000, "padded_vocab_size": 32_000, "tied": False},
    },
}  # fmt: skip
MICRO_BATCH_TOKENS, STEP_TOKENS = 8192, 65_536


def main(argv: Sequence[str] | None = None) -> None:
    """Run the sections that are asked for, and print their tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.pretrain.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="these sections")
    parser.add_argument("--seconds", type=float, default=300.0, help="the most that a row may take (default 300)")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, on a CPU where there is no GPU")
    parser.add_argument("--row", help=argparse.SUPPRESS)  # of a child: which row it is
    args = parser.parse_args(argv)
    if args.row is not None:
        work, options = json.loads(args.row)
        print(json.dumps(WORK[work](**options)), flush=True)
        return
    if not torch.cuda.is_available() and not args.tiny:
        parser.error("torch sees no GPU here. --tiny exercises the script on a CPU")
    for line in header(args):
        print(line)
    for name in args.only:
        print(f"\n### {name}\n")
        section, cells, columns = SECTIONS[name]
        for line in table(columns.split("|"), section(args), cells):
            print(line, flush=True)


def header(args: argparse.Namespace) -> Iterator[str]:
    """What the figures belong to."""
    words = ["python", "-m", "tools.bench.pretrain.gpu"] + sys.argv[1:] * (sys.argv[0].endswith("gpu.py"))
    yield f"`{shlex.join(words)}`"
    yield ""
    if not torch.cuda.is_available():
        yield "**CPU, tiny shapes: exercised, not measured.**"
        yield ""
    yield f"torch {metadata.version('torch')}, Python {platform.python_version()}, {where()}"


def where() -> str:
    """The device, its memory and its driver."""
    if not torch.cuda.is_available():
        return "no GPU"
    free, total = torch.cuda.mem_get_info()
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    version = driver.stdout.split("\n")[0] if driver.returncode == 0 else "unknown"
    device = torch.device("cuda")
    memory_here = f"{total / 2**30:.0f} GiB ({free / 2**30:.0f} free)"
    return f"{device_name(device)}, {memory_here}, driver {version}, CUDA {torch.version.cuda}"


def row(work: Callable[..., Row], limit: float, /, **options: Any) -> Row:
    """What a function returns in a process of its own; or {"failed": why}."""
    command = [sys.executable, "-m", "tools.bench.pretrain.gpu", "--row", json.dumps([work.__name__, options])]
    # A cache of its own: the first step compiles in every row, and one that is ended leaves no half library to others.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TORCHINDUCTOR_CACHE_DIR": cache}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, env=os.environ | settings, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"not done in {limit:.0f} s"}
    if done.returncode == 0:
        found: Row = json.loads(done.stdout.splitlines()[-1])
        return found
    if "OutOfMemoryError" in done.stderr or done.returncode == -9:
        return {"failed": "OOM"}
    sys.stderr.write(done.stderr)
    return {"failed": f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or ['?'])[-1][:120]}"}


def table(columns: Sequence[str], rows: Rows, cells: Cells) -> Iterator[str]:
    """Markdown: a name, and cells or why there are none."""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for name, found in rows:
        shown = [found["failed"], *[""] * (len(columns) - 2)] if "failed" in found else cells(found)
        yield f"| {name} | {' | '.join(shown)} |"


# ------------------------------------------------------------------------------------------------------------ parity

PARITY: dict[str, Sections] = {
    "fp32": {"training": {"precision": "fp32"}},
    "fp32, full recompute, document mask": {
        "model": {"document_mask": True},
        "training": {"precision": "fp32"},
        "parallel": {"recompute": "full"},
    },
    "bf16, compile": {"training": {"precision": "bf16", "compile": True}},
}
PARITY_MODEL: Sections = {
    "model": {"num_layers": 4, "hidden_size": 256, "num_heads": 8, "vocab_size": 4000, "padded_vocab_size": 4096},
    "training": {"global_batch_size": 4, "micro_batch_size": 2},
}


def parity(args: argparse.Namespace) -> Rows:
    """Loss and gradient norm of three steps beside the same on the CPU."""
    for name, sections in PARITY.items():
        found = row(parity_row, args.seconds, sections=merge_sections(SMALL if args.tiny else PARITY_MODEL, sections))
        yield name, {"limits": LIMITS["bf16" if "bf16" in name else "fp32"], **found}


def parity_cells(found: Row) -> list[str]:
    """The differences beside what they may be."""
    pairs = list(zip(found["off"], found["limits"], strict=True))
    is_within = all(off <= limit for off, limit in pairs)
    differences = (f"{off:.1e} (limit {limit:.0e})" for off, limit in pairs)
    return [found["device"], *differences, "yes" if is_within else "**no**"]


def parity_row(sections: Sections) -> Row:
    """The largest relative differences of loss and gradient norm of the first steps."""
    by_device = {}
    for device in ("cpu", "auto"):
        config = configuration(sections, {"training": {"device": device}})
        with mesh.start(config.parallel, device, timeout_minutes=1.0) as world:
            run = random_run(config, world, random_tokens(config))
            results = [train_step(run) for _ in range(3)]
            by_device[device] = [(result.loss, result.grad_norm) for result in results]
            name = device_name(world.device)
    pairs = list(zip(by_device["auto"], by_device["cpu"], strict=True))
    return {"device": name, "off": [max(abs(a[i] / b[i] - 1) for a, b in pairs) for i in range(2)]}


# ------------------------------------------------------------------------------------------------------------- speed


def speed(args: argparse.Namespace) -> Rows:
    """Ours beside a plain loop, for each shape and context."""
    for shape, sections in SHAPES.items():
        for context in list(MFU_TARGETS)[: 1 if args.tiny else None]:  # tiny shapes have a context of their own
            options = {"sections": with_context(sections, context, args.tiny), "seconds": args.seconds / 3}
            for contender, work in (("ours", ours), ("torch.compile and SDPA in a plain loop", plain)):
                found = {"target": MFU_TARGETS[context], **row(work, args.seconds, **options)}
                yield f"{shape}, {context if not args.tiny else 'tiny'}: {contender}", found


def speed_cells(found: Row) -> list[str]:
    """One row's figures."""
    mfu = "n/a" if found["mfu"] is None else f"{found['mfu']:.1%}"
    planned = "" if found.get("planned_bytes") is None else f"{found['planned_bytes'] / 2**30:.1f}"
    peak = "n/a" if found["peak_bytes"] is None else f"{found['peak_bytes'] / 2**30:.1f}"
    return [
        *(
            f"{found['tokens_per_second']:,.0f}",
            f"{found['flops_per_second'] / 1e12:.1f}",
            mfu,
            f"{found.get('target', 0):.0%}",
        ),
        *(f"{found['step_seconds']:.3f}", f"{found['first_seconds']:.0f} s", peak, planned),
    ]


def with_context(sections: Sections, context: int, tiny: bool) -> Sections:
    """A shape with a context: micro-batches of `MICRO_BATCH_TOKENS`, steps of `STEP_TOKENS`, bf16 and compile."""
    fast = {"training": {"precision": "bf16", "compile": True}}
    if tiny:
        return merge_sections(sections, SMALL, fast, {"model": {"sequence_length": 32, "ffn_hidden_size": 128}})
    batch = {"global_batch_size": STEP_TOKENS // context, "micro_batch_size": MICRO_BATCH_TOKENS // context}
    return merge_sections(sections, fast, {"model": {"sequence_length": context}, "training": batch})


def ours(sections: Sections, seconds: float) -> Row:
    """`train_step`, the same that `python -m pretrain train` runs."""
    return our_row(configuration(sections, {"training": {"device": "auto"}}), seconds)


def our_row(config: RunConfig, seconds: float) -> Row:
    with mesh.start(config.parallel, "auto", timeout_minutes=5.0) as world:
        run = random_run(config, world, random_tokens(config))
        found = measure_step(lambda: train_step(run), config, world.device, seconds)
        device: memory.Device = "cuda" if world.device.type == "cuda" else "cpu"
    planned = memory.worst(memory.estimate(config, 1, device)).device_bytes
    return {**found, "planned_bytes": planned}


def plain(sections: Sections, seconds: float) -> Row:
    """nanoGPT's way: fp32 weights, autocast to bf16, blocks and head compiled, fused AdamW."""
    config = configuration(sections, {"training": {"device": "auto"}})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with device:
        model = PlainGPT(config.model)
    model.compile()
    run = PlainRun(model, config, random_tokens(config), device.type)
    return measure_step(run.step, config, device, seconds)


def measure_step(step: Callable[[], object], config: RunConfig, device: torch.device, seconds: float) -> Row:
    """The median step after some that are not counted, in as many as the time allows."""
    first = _timed(step, device)
    for _ in range(WARM_UP - 1):
        _timed(step, device)
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(times) < 3 or (len(times) < 30 and time.perf_counter() < deadline):
        times.append(_timed(step, device))
    median = statistics.median(times)
    tokens = config.training.global_batch_size * config.model.sequence_length / median
    flops = tokens * flops_per_token(config.model)
    peak = peak_flops(device, config.training.precision)
    return {
        "tokens_per_second": tokens,
        "flops_per_second": flops,
        "mfu": flops / peak if peak else None,
        "step_seconds": median,
        "first_seconds": first,
        "peak_bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
    }


def _timed(step: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


# ------------------------------------------------------------------------------------------------------------- masks

MASK_TOKENS = (2048, 8192, 32_768)
MASK_HEADS = (32, 8, 128)  # of queries, of keys and values, and the numbers of each
DENSE_AT_MOST = 8192
DOCUMENT_TOKENS = 410  # on average


def masks(args: argparse.Namespace) -> Rows:
    """For each length attention that hides nothing, and under marks a dense mask and the model's choice."""
    heads = (4, 2, 16) if args.tiny else MASK_HEADS
    for num_tokens in (64, 96) if args.tiny else MASK_TOKENS:
        shape = {"num_tokens": num_tokens, "heads": heads, "seconds": args.seconds / 20}
        for marked, contender in (
            ("", "plainly causal"),
            ("documents", "dense"),
            ("documents", "chosen"),
            ("documents and prefixes", "dense"),
            ("documents and prefixes", "chosen"),
        ):
            if contender != "dense" or num_tokens <= DENSE_AT_MOST:
                found = row(masks_row, args.seconds, marked=marked, contender=contender, **shape)
                yield f"{num_tokens:,}, {f'{marked}: ' if marked else ''}{contender}", found


def masks_cells(found: Row) -> list[str]:
    """Milliseconds and MiB."""
    times = (f"{1e3 * found[name]:.2f}" for name in ("step_seconds", "made_seconds"))
    return [found["back_end"], *times, f"{found['peak_bytes'] / 2**20:,.0f}"]


def masks_row(marked: str, contender: str, num_tokens: int, heads: Sequence[int], seconds: float) -> Row:
    """Forward and backward of one window's attention, and what a forward makes once for all layers."""
    on_gpu = torch.cuda.is_available()
    device, dtype = torch.device("cuda" if on_gpu else "cpu"), torch.bfloat16 if on_gpu else torch.float32
    queries, groups, size = heads
    q, k, v = (
        torch.randn(1, num_tokens, number, size, device=device, dtype=dtype).transpose(1, 2).requires_grad_()
        for number in (queries, groups, groups)
    )
    gradient = torch.randn_like(q)
    visibility = _documents(num_tokens, "prefixes" in marked) if marked else Visibility()

    def make() -> Attend:
        if contender != "dense":
            return attention_for(visibility, q, size, is_compiled=False)
        return Dense(visibility.to(device).mask(range(1), range(num_tokens), range(num_tokens)))

    def step() -> None:
        torch.autograd.grad(attend(q, k, v), (q, k, v), gradient)

    make()
    start = time.perf_counter()
    attend = make()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    made = time.perf_counter() - start
    held = torch.cuda.memory_allocated() if on_gpu else status("VmRSS")
    _timed(step, device)
    times, deadline = [_timed(step, device)], time.perf_counter() + seconds
    while len(times) < 50 and time.perf_counter() < deadline:
        times.append(_timed(step, device))
    peak = torch.cuda.max_memory_allocated() if on_gpu else status("VmHWM")
    return {
        "back_end": type(attend).__name__.lower(),
        "step_seconds": statistics.median(times),
        "made_seconds": made,
        "peak_bytes": max(0, peak - held),
    }


def _documents(num_tokens: int, has_prefixes: bool) -> Visibility:
    """One window of documents that end at random, on the host; with prefixes each sees half of itself both ways."""
    random = np.random.default_rng(1)
    ids = np.cumsum(random.random(num_tokens) < 1 / DOCUMENT_TOKENS).astype(np.int32)
    first, length = np.searchsorted(ids, ids), np.bincount(ids)[ids]
    ends = (first + length // 2).astype(np.int32)
    return Visibility(torch.from_numpy(ids)[None], torch.from_numpy(ends)[None] if has_prefixes else None)


# ------------------------------------------------------------------------------------------------------------- asc22


def asc22(args: argparse.Namespace) -> Rows:
    """Hours for 1 B tokens on one GPU."""
    yield "NCUSCC, four V100, offload (published)", {"tokens_per_second": 1e9 / ASC22_HOURS / 3600}
    for name, offload in (("ours, one GPU", False), ("ours, one GPU, offload", True)):
        yield name, row(asc22_row, args.seconds, offload=offload, tiny=args.tiny, seconds=args.seconds / 3)


def asc22_cells(found: Row) -> list[str]:
    """The speed as hours; of the published one no more is known."""
    others = speed_cells(found) if "mfu" in found else [""] * 8
    rate = found["tokens_per_second"]
    return [f"{rate:,.0f}", f"{1e9 / rate / 3600:,.2f}", others[2], *others[6:]]


def asc22_row(offload: bool, tiny: bool, seconds: float) -> Row:
    """Their batch between updates: 65,536 tokens."""
    if tiny:
        parts: Sections = {
            "training": {"precision": "bf16", "device": "auto"},
            "parallel": {"recompute": "full", "offload": offload},
        }
        return our_row(configuration(SMALL, parts), seconds)
    words = [f"parallel.offload={str(offload).lower()}", "training.global_batch_size=32", "training.compile=true"]
    return our_row(load_config("asc22-4.7b", words), seconds)


# ------------------------------------------------------------------------------------------------------ host and loader


def host(args: argparse.Namespace) -> Rows:
    """Host memory while weights and optimizer are there."""
    sections = merge_sections(with_context(SHAPES["1.7B"], 2048, args.tiny), {"parallel": {"offload": True}})
    num_steps = 5 if args.tiny else HOST_STEPS
    options = {"sections": sections, "num_steps": num_steps, "seconds": 0.8 * args.seconds}
    yield "1.7B, offload", {"wanted": num_steps, **row(host_row, args.seconds, **options)}


def host_cells(found: Row) -> list[str]:
    """Ten looks at the process, and how much it has grown."""
    gib = " ".join(f"{number / 2**30:.2f}" for number in found["host_bytes"])
    return [f"{found['steps']} of {found['wanted']}", gib, f"{found['growth_bytes'] / 2**20:+.0f} MiB"]


def host_row(sections: Sections, num_steps: int, seconds: float) -> Row:
    """Resident memory over steps."""
    config = configuration(sections, {"training": {"device": "auto"}})
    deadline = time.perf_counter() + seconds
    held: list[int] = []
    with mesh.start(config.parallel, "auto", timeout_minutes=5.0) as world:
        run = random_run(config, world, random_tokens(config))
        while len(held) < num_steps and (len(held) < 2 or time.perf_counter() < deadline):
            train_step(run)
            held.append(status("VmRSS"))
    begun = held[min(9, len(held) // 2)]
    shown = held[:: max(1, len(held) // 10)]
    return {"steps": len(held), "host_bytes": shown, "growth_bytes": held[-1] - begun}


def loader(args: argparse.Namespace) -> Rows:
    """What reading costs the training."""
    sections = with_context(SHAPES["1.7B"], 2048, args.tiny)
    for name, on_disk in (("random tokens in memory", False), ("token shards on disk", True)):
        options = {"sections": sections, "on_disk": on_disk, "tiny": args.tiny, "seconds": args.seconds / 3}
        yield name, row(loader_row, args.seconds, **options)


def loader_cells(found: Row) -> list[str]:
    """Speed alone."""
    return [f"{found['tokens_per_second']:,.0f}", f"{found['step_seconds']:.3f}"]


def loader_row(sections: Sections, on_disk: bool, tiny: bool, seconds: float) -> Row:
    """The same model on tokens of a shard that was just written, or in memory."""
    from pretrain.corpora import Corpus, order_from, stream_of
    from pretrain.data import Loader
    from pretrain.training.step import new_run
    from tokenizer.shards import open_split
    from tools.bench.tokenizer import loader as bench

    vocabulary = {"vocab_size": bench.VOCAB_SIZE, "padded_vocab_size": -(-bench.VOCAB_SIZE // 128) * 128}
    config = configuration(sections, {"model": vocabulary, "training": {"device": "auto"}})
    with tempfile.TemporaryDirectory() as folder, mesh.start(config.parallel, "auto", timeout_minutes=5.0) as world:
        if on_disk:
            corpus = bench.write_corpus(Path(folder) / "corpus", 1 << (14 if tiny else 28))
            shards = Corpus("", corpus, open_split(corpus, "train"))
            stream = stream_of(shards, config.model.sequence_length, seed=0, verify=True)
            run = new_run(config, world, Loader([stream]), order_from(config))
        else:
            run = random_run(config, world, random_tokens(config))
        return measure_step(lambda: train_step(run), config, world.device, seconds)


# -------------------------------------------------------------------------------------------------------------- loss


def loss(args: argparse.Namespace) -> Rows:
    """Each way of each vocabulary."""
    tokens, width = (64, 32) if args.tiny else (MICRO_BATCH_TOKENS, 2304)
    for vocabulary in (1000,) if args.tiny else LOSS_VOCABULARIES:
        for kind in LOSSES:
            options = {"kind": kind, "tokens": tokens, "width": width, "vocabulary": vocabulary}
            yield f"{vocabulary:,} entries: {kind}", row(loss_row, args.seconds, **options, seconds=args.seconds / 9)


def loss_cells(found: Row) -> list[str]:
    """Time, and memory."""
    return [f"{1e3 * found['step_seconds']:,.1f}", f"{found['beyond_bytes'] / 2**30:.2f}"]


def loss_row(kind: str, tokens: int, width: int, vocabulary: int, seconds: float) -> Row:
    """In bf16 on a GPU, in fp32 on a CPU; memory beyond weights, input and their gradients."""
    if kind == "F.linear_cross_entropy" and not hasattr(F, "linear_cross_entropy"):
        return {"failed": f"torch {metadata.version('torch')} has none"}
    is_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if is_gpu else "cpu")
    like: dict[str, Any] = {"device": device, "dtype": torch.bfloat16 if is_gpu else torch.float32}
    x = torch.randn(1, tokens, width, **like).requires_grad_()
    weight = torch.randn(vocabulary, width, **like).mul_(0.02).requires_grad_()
    targets = torch.randint(0, vocabulary, (1, tokens), device=device)
    x.grad, weight.grad = torch.zeros_like(x), torch.zeros_like(weight)
    before = torch.cuda.memory_allocated() if is_gpu else status("VmRSS")

    def step() -> None:
        x.grad = weight.grad = None
        LOSSES[kind](x, weight, targets).backward()  # type: ignore[no-untyped-call]

    times: list[float] = []
    _timed(step, device)
    deadline = time.perf_counter() + seconds
    while len(times) < 3 or (len(times) < 30 and time.perf_counter() < deadline):
        times.append(_timed(step, device))
    most = torch.cuda.max_memory_allocated() if is_gpu else status("VmHWM")
    return {"step_seconds": statistics.median(times), "beyond_bytes": max(0, most - before)}


def torchs_loss(x_ND: torch.Tensor, weight_VD: torch.Tensor, targets_1N: torch.Tensor) -> torch.Tensor:
    """Of torch 2.13."""
    total: torch.Tensor = vars(F)["linear_cross_entropy"](x_ND, weight_VD, targets_1N[0], reduction="sum")
    return total


LOSS_VOCABULARIES = (32_000, 128_256, 151_936)  # of Llama 2, Llama 3 and Qwen 2.5
LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "dense": lambda x, weight, targets: ALONE.cross_entropy_sum(F.linear(x, weight), targets),
    "in chunks": lambda x, weight, targets: linear_cross_entropy_sum(x, weight, targets, len(weight), 0.0, ALONE),
    "F.linear_cross_entropy": lambda x, *others: torchs_loss(x[0], *others),
}

SECTIONS: dict[str, tuple[Callable[[argparse.Namespace], Rows], Cells, str]] = {  # the last: the columns
    "parity": (parity, parity_cells, "run|device|loss, relative difference to the CPU|gradient norm|within"),
    "speed": (
        speed,
        speed_cells,
        "run|tokens/s|TFLOP/s|MFU|target|s a step|first step|peak GiB|planned GiB",
    ),
    "masks": (
        masks,
        masks_cells,
        "tokens|back-end|ms forward and backward|ms of what is made once for all layers|peak MiB above q, k, v",
    ),
    "asc22": (asc22, asc22_cells, "run|tokens/s|hours for 1 B tokens|MFU|peak GiB|planned GiB"),
    "host": (host, host_cells, "run|steps|GiB of the process, ten times|from the tenth step to the last"),
    "loader": (loader, loader_cells, "tokens from|tokens/s|s a step"),
    "loss": (loss, loss_cells, "loss|ms forward and backward|GiB beyond weights, input and gradients"),
}
WORK: dict[str, Callable[..., Row]] = {
    function.__name__: function
    for function in (parity_row, ours, plain, masks_row, asc22_row, host_row, loader_row, loss_row)
}

if __name__ == "__main__":
    main()
