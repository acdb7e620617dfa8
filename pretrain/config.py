"""What a training run is, as frozen data: TOML in, strict models out, every error named at once.

A run is reproducible from three things: this configuration (a copy lies in each checkpoint), the token shards
and the code. Nothing here depends on the number of ranks: `global_batch_size` and `padded_vocab_size` are the
model's and the run's own, and the layout over ranks (`parallel`) changes the speed and the memory, not the
result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from corpus.engine.config import Strict, load_toml, parse
from corpus.engine.errors import UsageError
from pretrain.schedules import DEFAULT, SCHEDULES, ScheduleSpec

VOCABULARY_MULTIPLE = 128  # so that any usual tensor-parallel degree divides the padded vocabulary
FFN_MULTIPLE = 64
NAME_PATTERN = r"^[^\s/:=]{1,80}$"

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Ratio = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]

Precision = Literal["fp32", "bf16", "fp16", "fp64"]  # fp64: to compare layouts, not to train
Zero = Literal[1, 2, 3]
ScheduleKind = Annotated[str, AfterValidator(lambda name: _known_schedule(name))]  # one of `pretrain.schedules`
Recompute = Literal["none", "selective", "full"]


class ModelConfig(Strict):
    """The shape of a GPT. `vocab_size` is the tokenizer's and is filled in when training starts."""

    num_layers: Count
    hidden_size: Count
    num_heads: Count
    num_kv_heads: Count | None = None  # None: as many as num_heads; fewer is grouped-query attention
    ffn_hidden_size: Count | None = None  # None: 4 x hidden for either gelu; 8/3 x hidden, rounded up to 64, for swiglu
    sequence_length: Count
    vocab_size: Count | None = None
    padded_vocab_size: Count
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    activation: Literal["swiglu", "gelu", "gelu_tanh"] = "swiglu"  # gelu_tanh: the approximation of GPT-2's code
    positions: Literal["rope", "learned"] = "rope"
    bias: bool = False
    tied: bool = True
    document_mask: bool = False  # True: a token sees only tokens of its own document
    rope_base: Positive = 10_000.0
    norm_epsilon: Positive = 1e-5
    init_std: Positive = 0.02

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads."""
        return self.num_kv_heads or self.num_heads

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.hidden_size // self.num_heads

    @property
    def ffn_size(self) -> int:
        """Width of the feed-forward layer."""
        if self.ffn_hidden_size:
            return self.ffn_hidden_size
        if self.activation != "swiglu":
            return 4 * self.hidden_size
        return -(-8 * self.hidden_size // (3 * FFN_MULTIPLE)) * FFN_MULTIPLE

    @model_validator(mode="after")
    def _check(self) -> ModelConfig:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} does not divide into num_heads {self.num_heads}")
        if self.num_heads % self.kv_heads:
            raise ValueError(f"num_heads {self.num_heads} must be a multiple of num_kv_heads {self.kv_heads}")
        if self.positions == "rope" and self.head_size % 2:
            raise ValueError(f"rope turns pairs of channels: a head of {self.head_size} is odd")
        if self.padded_vocab_size % VOCABULARY_MULTIPLE:
            raise ValueError(
                f"padded_vocab_size {self.padded_vocab_size} must be a multiple of {VOCABULARY_MULTIPLE}, "
                f"for example {padded_vocab_size(self.padded_vocab_size)}"
            )
        if (self.vocab_size or 0) > self.padded_vocab_size:
            raise ValueError(f"padded_vocab_size {self.padded_vocab_size} is below vocab_size {self.vocab_size}")
        return self


class CorpusConfig(Strict):
    """One of several corpora that a run blends; all say `weight` or `epochs`, or none does."""

    path: str  # the output folder of a build, or the folder of its tokens stage; here or in a store (s3://...)
    name: Annotated[str, Field(pattern=NAME_PATTERN)] | None = None  # None: the last part of the path
    weight: Positive | None = None  # its share of the samples, relative to the other weights
    epochs: Positive | None = None  # how often the run reads it, taken before the weights share the rest

    @property
    def label(self) -> str:
        """What start-up, metrics and trace call it, and part of the key of its order."""
        return self.name or Path(self.path).name

    @model_validator(mode="after")
    def _check(self) -> CorpusConfig:
        if not re.fullmatch(NAME_PATTERN, self.label):
            raise ValueError(f"{self.path!r} ends in no name that can be used. Give the corpus a `name`")
        if self.weight is not None and self.epochs is not None:
            raise ValueError(f"{self.label}: has a weight and epochs. One of them says how much of it a run reads")
        return self


class DataConfig(Strict):
    """What to read and how windows are cut from it. One corpus may be an argument of the run instead of `corpora`."""

    train_split: str = "train"
    validation_split: str = "validation"
    corpora: tuple[CorpusConfig, ...] = Field(default=(), strict=False)
    order: Literal["permuted", "megatron"] = "permuted"  # megatron: Megatron's own indices, bit for bit
    reset_positions: bool = False  # True: positions begin anew with each document of a window
    prefix_lm: bool = False  # True: each window, or each document under a document mask, has a prefix seen both ways
    cache: str | None = None  # folder on a disk of each node, for shards that lie on object storage
    cache_gib: Positive = 1024.0  # the most it may hold; shards that runs do not read now make room

    @model_validator(mode="after")
    def _check(self) -> DataConfig:
        labels = [corpus.label for corpus in self.corpora]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"two corpora are called {label}. Give each a name of its own")
        silent = [corpus.label for corpus in self.corpora if corpus.weight is None and corpus.epochs is None]
        if silent and len(silent) < len(self.corpora):
            raise ValueError(f"{', '.join(silent)}: needs a weight or epochs, as other corpora have; or none has any")
        return self


class OptimizerConfig(Strict):
    """AdamW (Loshchilov and Hutter 2019). Norms and biases never decay."""

    learning_rate: Positive
    beta1: Beta = 0.9
    beta2: Beta = 0.95
    epsilon: Positive = 1e-8
    weight_decay: NonNegative = 0.1
    decay_embeddings: bool = False


class ScheduleConfig(Strict):
    """The learning rate over steps: linear warm-up, then `kind`, ending at `final_ratio` of the peak."""

    kind: Literal["constant", "cosine", "wsd"] = "cosine"
    warmup_steps: CountOrZero = 0
    decay_steps: Count | None = None  # cosine: length of the fall after warm-up; wsd: of the final fall
    final_ratio: Ratio = 0.1


class RampupConfig(Strict):
    """Megatron's batch-size ramp-up: from `start` by `increment` up to the global batch size over `num_samples`."""

    start: Count
    increment: Count
    num_samples: Count


class LossScaleConfig(Strict):
    """fp16: what the loss is multiplied by, so that small gradients are not rounded to zero.

    Halved where a gradient overflows, and the step is done again; doubled after `growth_steps` steps without one.
    """

    initial: Annotated[float, Field(ge=1, le=2.0**32)] = 2.0**16
    growth_steps: Count = 1000


class TrainingConfig(Strict):
    """How long, how wide and how precisely. A step sees `global_batch_size` samples on any number of ranks."""

    num_steps: Count
    global_batch_size: Count
    micro_batch_size: Count  # at most; a rank with a smaller part of the batch takes that
    rampup: RampupConfig | None = None
    precision: Precision = "fp32"
    loss_scale: LossScaleConfig = LossScaleConfig()
    compile: bool | Literal["auto"] = "auto"  # each block by torch.compile; auto: `RunConfig.compiles_blocks`
    z_loss: NonNegative = (
        0.0  # times the mean of (ln Z)^2, added to the loss: keeps logits from drifting (1e-4 in PaLM)
    )
    fused_kernels: bool = True  # False, to compare: attention writes its scores, AdamW goes tensor by tensor
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: Seed = 1234
    max_grad_norm: Positive = 1.0
    max_bad_steps: Count = 3  # non-finite steps in a row before the run stops
    spike_deviations: Positive = 6.0  # a loss that far above the recent ones is recorded as a spike
    host_memory_gib: Positive | None = None  # of each node, for its ranks together; None: all that the node has
    timeout_minutes: Positive = 10.0  # a rank that waits longer for another fails

    @model_validator(mode="after")
    def _check(self) -> TrainingConfig:
        if self.rampup is not None:
            growth, increment = self.global_batch_size - self.rampup.start, self.rampup.increment
            if growth < 0:
                raise ValueError(
                    f"rampup.start {self.rampup.start} is above global_batch_size {self.global_batch_size}"
                )
            if growth % increment:
                raise ValueError(
                    f"rampup: {growth} samples from start {self.rampup.start} to global_batch_size "
                    f"{self.global_batch_size} are no whole number of increments of {increment}"
                )
        return self


class ParallelConfig(Strict):
    """The layout over ranks: pp x dp_replicate x dp_shard x tp of them.

    `pretrain.schedules` says what each `schedule` does, `engine.fsdp` what each `zero`, `base.recompute` what is
    computed again. `parallel = "auto"` stands for `auto = true`: a run begins with a layout that `plan.auto` has
    chosen.
    """

    auto: bool = False  # the planner chooses all below and training.micro_batch_size, for the ranks that there are
    cluster: str | None = None  # auto: what it plans for, by name or as a TOML file; None: what is here
    tp: Count = 1  # ranks that share each matrix
    sequence_parallel: bool = True  # with tp > 1: between the matrices each of them holds a part of the tokens
    pp: Count = 1  # ranks that share the layers
    schedule: ScheduleKind = DEFAULT
    stages_per_rank: Count | None = None  # None: the fewest that the schedule runs
    layers_per_stage: Annotated[tuple[Count, ...], Field(strict=False)] | None = None  # None: equal work, head included
    dp_replicate: Count = 1
    dp_shard: Count | None = None  # None: all ranks that remain
    zero: Zero = 2
    offload: bool = False  # parameters, gradients and optimizer state in host memory; updates on the CPU
    recompute: Recompute = "none"
    recompute_every: Count = 1  # full: of every n-th layer

    @property
    def num_stages(self) -> int:
        """Parts that the model is cut into."""
        return self.pp * self.chunks

    @property
    def chunks(self) -> int:
        """Stages on each rank of a pipeline."""
        if self.pp == 1:
            return 1
        return self.stages_per_rank or self.schedule_spec.fewest_chunks

    @property
    def schedule_spec(self) -> ScheduleSpec:
        """What is known of the schedule."""
        return SCHEDULES[self.schedule]

    @property
    def splits_backward(self) -> bool:
        """Whether the gradients of weights are computed apart from those of inputs."""
        return self.pp > 1 and self.schedule_spec.splits_backward

    def zero_over(self, num_shards: int) -> Zero:
        """What `zero` comes to over that many shards.

        Over one, 2 would cast the weights anew for each micro-batch and keep no less: it is 1. Not where the device's
        memory is what counts: 3 keeps no copy of the weights there, and with `offload` 2 keeps no whole gradients.
        """
        return 1 if self.zero == 2 and num_shards == 1 and not self.offload else self.zero

    @model_validator(mode="before")
    @classmethod
    def _read_word(cls, values: Any) -> Any:
        if not isinstance(values, str):
            return values
        if values != "auto":
            raise ValueError(f'{values!r} is no layout. Let it be "auto", or a section of settings')
        return {"auto": True}

    @model_validator(mode="after")
    def _check(self) -> ParallelConfig:
        if self.cluster is not None and not self.auto:
            raise ValueError("cluster is what auto plans for, and auto is off. Set auto = true, or leave cluster out")
        fields = type(self).model_fields
        given = [name for name in fields if getattr(self, name) != fields[name].default]
        if self.auto and (chosen := [name for name in given if name not in ("auto", "cluster")]):
            raise ValueError(
                f"auto chooses {' and '.join(chosen)}. Leave {'them' if len(chosen) > 1 else 'it'} out "
                "(`--set parallel=auto` replaces the section), or auto"
            )
        if self.recompute_every > 1 and self.recompute != "full":
            raise ValueError(
                f"recompute_every {self.recompute_every} chooses among the layers of recompute full, not "
                f"{self.recompute}. Leave it out"
            )
        if self.pp == 1:
            for name in ("stages_per_rank", "layers_per_stage"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is of a pipeline, and pp is 1. Raise pp, or leave {name} out")
            return self
        spec = self.schedule_spec
        if not spec.runs(self.chunks):
            other = next(name for name, each in SCHEDULES.items() if each.searched_chunks and each.runs(self.chunks))
            raise ValueError(
                f"schedule {self.schedule} runs {'exactly' if spec.most_chunks else 'at least'} {spec.fewest_chunks} "
                f"stages on a rank, stages_per_rank is {self.chunks}. Leave it out, or choose {other}"
            )
        if self.layers_per_stage is not None and len(self.layers_per_stage) != self.num_stages:
            raise ValueError(
                f"layers_per_stage has {len(self.layers_per_stage)} entries, but pp {self.pp} x {self.chunks} "
                f"stages on a rank are {self.num_stages} stages. Give one entry for each"
            )
        return self


class CheckpointConfig(Strict):
    """When to save; the last step is always saved."""

    every_steps: Count
    keep_last: Count = 2
    keep_every_steps: Count | None = None  # checkpoints of its multiples stay for good
    async_save: bool = True  # files are written while training goes on
    url: str | None = None  # object storage that holds the checkpoints instead of the run's folder

    @model_validator(mode="after")
    def _check(self) -> CheckpointConfig:
        if self.url is None:
            return self
        if re.search(r"://[^/]*:[^/]*@|\?", self.url):  # said without it
            raise ValueError(
                "url holds a password or a key, and it is printed, and written into every checkpoint. Give that to the "
                "store's client in its environment variables or configuration files"
            )
        if "://" not in self.url or self.url.startswith("file://"):
            raise ValueError(
                f"url {self.url} is not of object storage. Leave it out, and checkpoints lie in the run's folder, --out"
            )
        return self


class MetricsConfig(Strict):
    """How often to report, and where besides the console and metrics.jsonl."""

    every_steps: Count = 10
    tensorboard: bool = True
    profile_step: Count | None = None  # first of `profile_steps` steps whose trace is written to OUT/profile
    profile_steps: Count = 3
    profile_ranks: Annotated[tuple[CountOrZero, ...], Field(min_length=1, strict=False)] | None = (
        None  # None: all of them
    )


class EvaluationConfig(Strict):
    """Held-out measurement, and the paragraph written at the end."""

    every_steps: Count
    max_tokens: Count = 1_000_000  # held-out tokens that are scored, whole documents
    prompt: str = "在这个页面上，"
    sample_tokens: CountOrZero = 200


class RunConfig(Strict):
    """One training run."""

    model: ModelConfig
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = ScheduleConfig()
    training: TrainingConfig
    parallel: ParallelConfig = ParallelConfig()
    checkpoint: CheckpointConfig
    metrics: MetricsConfig = MetricsConfig()
    evaluation: EvaluationConfig

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        if self.schedule.warmup_steps > self.training.num_steps:
            raise ValueError(
                f"schedule.warmup_steps {self.schedule.warmup_steps} is longer than the run: "
                f"training.num_steps is {self.training.num_steps}"
            )
        if self.training.global_batch_size % self.training.micro_batch_size:
            raise ValueError(
                f"training.global_batch_size {self.training.global_batch_size} must be a multiple of "
                f"training.micro_batch_size {self.training.micro_batch_size}"
            )
        if self.training.compile is True and self.parallel.splits_backward:
            whole = [name for name, spec in SCHEDULES.items() if spec.searched_chunks and not spec.splits_backward]
            raise ValueError(
                f"training.compile: schedule {self.parallel.schedule} leaves gradients of weights for later, "
                f"outside of the graph that is compiled. Use {' or '.join(whole)}, or leave compile out"
            )
        _check_layout(self.model, self.parallel)
        return self

    def compiles_blocks(self, on_gpu: bool) -> bool:
        """Whether each block goes through torch.compile; "auto": on a GPU, where the schedule allows it."""
        if self.training.compile == "auto":
            return on_gpu and not self.parallel.splits_backward
        return self.training.compile


def _known_schedule(name: str) -> str:
    if name not in SCHEDULES:
        *most, last = (repr(known) for known in SCHEDULES)
        raise PydanticCustomError(
            "literal_error", "Input should be {expected}", {"expected": f"{', '.join(most)} or {last}"}
        )
    return name


def _check_layout(model: ModelConfig, parallel: ParallelConfig) -> None:
    """Refuse a layout that cannot cut the model into equal parts (tensor parallelism) or whole layers (a pipeline).

    Raises:
        ValueError: with what does not fit, and what would.
    """
    shared = {
        "heads of keys and values": model.kv_heads,
        "feed-forward channels": model.ffn_size,
        "entries of the padded vocabulary": model.padded_vocab_size,
    }
    if parallel.sequence_parallel:
        shared["tokens of a sequence"] = model.sequence_length
    for what, number in shared.items():
        if number % parallel.tp:
            raise ValueError(
                f"parallel.tp {parallel.tp} ranks cannot share {number:,} {what} evenly. "
                f"Use a divisor of it, for example {math.gcd(number, parallel.tp)}"
            )
    if parallel.num_stages > model.num_layers:
        raise ValueError(
            f"parallel.pp {parallel.pp} x {parallel.chunks} stages on a rank are {parallel.num_stages} stages, and "
            f"the model has {model.num_layers} layers. A stage needs one: lower parallel.pp or parallel.stages_per_rank"
        )
    if parallel.layers_per_stage is not None and sum(parallel.layers_per_stage) != model.num_layers:
        raise ValueError(
            f"parallel.layers_per_stage has {sum(parallel.layers_per_stage)} layers in all, the model "
            f"{model.num_layers}. Let them be equal, or leave it out"
        )


def named_configs() -> list[str]:
    """The names of the configurations that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _configs().iterdir() if path.name.endswith(".toml"))


def load_config(name_or_path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """A configuration that comes with the package, by name, or one's own TOML file, with `a.b=value` overrides.

    Raises:
        UsageError: there is no such file, or it has errors; all of them are listed.
    """
    return parse(RunConfig, *read_config(name_or_path, overrides), overrides)


def read_config(name_or_path: str, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
    """What a configuration says, not yet checked, and what errors call it; raises as `load_config`."""
    if name_or_path in named_configs():
        with resources.as_file(_configs() / f"{name_or_path}.toml") as path:
            return load_toml(path, overrides), f"config {name_or_path}"
    if not Path(name_or_path).is_file():
        raise UsageError(f"--config {name_or_path}: no such file, and none of {', '.join(named_configs())}.")
    return load_toml(Path(name_or_path), overrides), name_or_path


def corpus_folders(config: DataConfig, data: str | Path | None) -> dict[str, str]:
    """Where each corpus of a run lies, a folder or URL by name: `data` alone, or what the configuration lists.

    Raises:
        UsageError: both name one, or neither does.
    """
    if data is not None and config.corpora:
        names = ", ".join(corpus.label for corpus in config.corpora)
        raise UsageError(
            f"--data {data}: the configuration names the corpora already ({names}). Leave one of them out."
        )
    if data is not None:
        return {Path(data).resolve().name: str(data)}
    if not config.corpora:
        raise UsageError("no corpus: give --data FOLDER, or list [[data.corpora]] in the configuration.")
    return {corpus.label: corpus.path for corpus in config.corpora}


def to_json(config: RunConfig) -> dict[str, Any]:
    """The configuration as a JSON object; `parse(RunConfig, ...)` reads it back."""
    return config.model_dump(mode="json", exclude_none=True)


def padded_vocab_size(num_rows: int) -> int:
    """The padded size of a vocabulary."""
    return -(-num_rows // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def with_vocab_size(config: RunConfig, vocab_size: int) -> RunConfig:
    """The configuration for a tokenizer of `vocab_size` entries.

    Raises:
        UsageError: the tokenizer does not fit the model.
    """
    model = config.model
    if vocab_size > model.padded_vocab_size:
        raise UsageError(
            f"the tokenizer has {vocab_size:,} entries, the model room for {model.padded_vocab_size:,}. "
            f"Use --set model.padded_vocab_size={padded_vocab_size(vocab_size)}"
        )
    if model.vocab_size not in (None, vocab_size):
        raise UsageError(
            f"the tokenizer has {vocab_size:,} entries, the configuration says {model.vocab_size:,}. "
            "Use that tokenizer's shards, or leave model.vocab_size out."
        )
    return config.model_copy(update={"model": model.model_copy(update={"vocab_size": vocab_size})})


def _configs() -> Any:
    return resources.files("pretrain") / "configs"
