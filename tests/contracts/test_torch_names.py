"""What we use of torch exists in 2.11 too, the oldest version that pyproject.toml allows; and what of it is private.

The lists of new names come from a comparison of the public names and signatures of 2.11.0 and 2.13.0, of the modules
that training may want: torch itself, nn, autograd, optim, compiler, profiler, distributed and what lies below them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("pretrain", "tools")

NEW_NAMES = set(
    """
    ALL_REDUCE_OPS CacheInfo DataParallelMeshDims GetMeshCallback LinearCrossEntropyLoss LinearCrossEntropyOptions
    PipeliningMetadataError all_gather_single all_gather_single_autograd all_gather_single_coalesced
    batch_p2p_ops_inplace boxed_grads_call caching_allocator_disabled const_data_ptr current_solver_handle
    enforce_grad_layout_policy get_default_backend irecv_inplace isend_inplace linear_cross_entropy record_comm
    reduce_scatter_single reduce_scatter_single_autograd reduce_scatter_single_coalesced region_activation_memory_budget
    register_symm_mem_args reset_iter_state set_default_backend set_override_stale_capture_stream
    set_reduce_scatter_max_input_buffers set_reduce_scatter_unused_params set_separate_reduce_scatter_group
    set_symm_mem_for_comm swap_in_optimizer_params_and_state thread_safe_generator varlen_attn_out
    """.split()
)
NEW_KEYWORDS = {  # function: keywords that it does not take in 2.11
    "BatchNorm1d": {"bias"},
    "BatchNorm2d": {"bias"},
    "BatchNorm3d": {"bias"},
    "BlockMask": {"dq_kv_order", "dq_kv_order_spt", "dq_write_order", "dq_write_order_full"},
    "DistributedDataParallel": {"batched_grad_copy", "forward_sync_buffers"},
    "GroupNorm": {"bias"},
    "LaunchConfig": {"shutdown_timeout"},
    "PipelineStage": {"get_mesh", "input_grads", "output_grads"},
    "ScheduleDualPipeV": {"defer_pp_recv"},
    "ScheduleInterleaved1F1B": {"defer_pp_recv"},
    "ScheduleInterleavedZeroBubble": {"defer_pp_recv"},
    "ScheduleLoopedBFS": {"defer_pp_recv"},
    "ScheduleZBVZeroBubble": {"defer_pp_recv"},
    "barrier": {"timeout"},
    "capture_begin": {"check_input_liveness"},
    "compile": {"isolate_recompiles", "recompile_limit", "shapes_spec"},
    "create_block_mask": {"compute_dq_write_order", "dq_kv_order", "separate_full_blocks"},
    "elastic_launch": {"health_check_server"},
    "export_chrome_trace": {"use_python_export"},
    "from_kv_blocks": {"dq_kv_order", "dq_write_order", "dq_write_order_full"},
    "from_local": {"grad_placements"},
    "fully_shard": {"dp_mesh_dims"},
    "graph": {"check_input_liveness", "enable_annotations"},
    "nested_compile_region": {"max_reuse_entries", "reuse_hash_fn"},
    "new_group": {"sort_ranks"},
    "replicate": {"dp_mesh_dims"},
    "split_group": {"backend"},
    "step": {"loss_kwargs"},
    "varlen_attn": {"block_table", "enable_gqa", "num_splits", "seqused_k"},
}

PRIVATE = {  # file: {private name of torch: what for, where there is no public one}
    "pretrain/training/optim.py": {"_foreach_mul_": "scales all gradients in one call; clip_grads_with_norm_ takes no "
        "local parts"},
    "pretrain/parallel/engine/fsdp.py": {
        # reduce_deferred, as torch's own PipelineStage.perform_reduce_grad
        "_state_ctx": "the states of all modules of a part",
        "_fsdp_param_group": "a module's parameters, in 2.11",
        "_fsdp_param_groups": "the same in 2.13, a list",
        "_root_post_backward_final_callback": "waits for the reductions",
    },
    "pretrain/parallel/base/mesh.py": {
        "_set_pg_timeout": "init_device_mesh gives its groups the default timeout, 30 minutes",
        **dict.fromkeys(("_Options", "_devices", "_threads", "_timeout"), "gloo's options, for one worker a group"),
    },
    "pretrain/parallel/base/params.py": {"__create_chunk_list__": "where this rank's part of a DTensor lies, as "
        "checkpoints ask it"},
    "pretrain/parallel/base/recompute.py": {
        # operators whose results are kept have no other name
        "_scaled_dot_product_cudnn_attention": "attention",
        "_scaled_dot_product_efficient_attention": "attention",
        "_scaled_dot_product_flash_attention": "attention",
        "_scaled_dot_product_flash_attention_for_cpu": "attention",
        "_varlen_attn": "attention",
    },
    "tools/bench/pretrain/offload.py": {
        "_python_dispatch": "sees every allocation; torch documents its dispatch mode under this name"
    },
    "pretrain/parallel/base/tensor.py": {
        "_c10d_functional": "collectives that return a new tensor, which selective recompute can keep",
        "_parameters": "parameters by name, one by one, to put others in their places",
    },
}  # fmt: skip
PYTHON = {*dir(object), *dir(dict), *dir(type), "__name__", "_replace"}  # underscored, and everybody's
OTHER_SYSTEMS = "tools/bench/peers/"  # reach into what they measure


def new_names(source: str) -> Iterator[str]:
    """Each use of what only 2.13 has, with its line."""
    if NEW_NAMES.union(NEW_KEYWORDS).isdisjoint(re.findall(r"\w+", source)):
        return  # most modules, and quicker
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in NEW_NAMES:
            yield f"{node.lineno}: {node.attr}"
        elif isinstance(node, ast.ImportFrom) and _is_torch(node.module):
            yield from (f"{node.lineno}: {alias.name}" for alias in node.names if alias.name in NEW_NAMES)
        elif isinstance(node, ast.Call):
            function = _last_name(node.func)
            for keyword in node.keywords:
                if keyword.arg in NEW_KEYWORDS.get(function, ()):
                    yield f"{node.lineno}: {function}({keyword.arg}=)"


def private_names(source: str) -> set[str]:
    """The private names of torch that a module uses.

    Those imported from torch or reached from such an import; and, as types are not known here, each underscored
    attribute of an object that is neither the module's own (`self`) nor reached from an import of something else.
    """
    if "torch" not in source:
        return set()
    tree = ast.parse(source)
    roots = dict(_imported(tree))
    names = {
        name for module in roots.values() if _is_torch(module) for name in module.split(".") if name.startswith("_")
    }
    if not any(_is_torch(module) for module in roots.values()):
        return set()
    for node in ast.walk(tree):
        attribute = None
        if isinstance(node, ast.Attribute):
            attribute, owner = node.attr, node.value
        elif isinstance(node, ast.Call) and _last_name(node.func) == "getattr" and len(node.args) > 1:
            owner = node.args[0]
            attribute = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        if not isinstance(attribute, str) or not attribute.startswith("_") or attribute in PYTHON:
            continue
        root = _root(owner)
        if root not in ("self", "cls", "super") and _is_torch(roots.get(root, "torch")):
            names.add(attribute)
    return names


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name in the module, dotted name) of everything imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _root(node: ast.expr) -> str:
    """The name that a chain of attributes, calls and subscripts begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_torch(module: str | None) -> bool:
    return module is not None and module.split(".")[0] == "torch"


@pytest.fixture(scope="module")
def sources(repository: Path) -> dict[str, str]:
    paths = [path for package in PACKAGES for path in sorted((repository / package).rglob("*.py"))]
    return {path.relative_to(repository).as_posix(): path.read_text() for path in paths}


def test_nothing_that_only_the_newest_torch_has(sources: dict[str, str]) -> None:
    found = [f"{name}:{use}" for name, source in sources.items() for use in new_names(source)]
    assert not found, "\n".join(found)


def test_the_private_names_of_torch_are_those_listed(sources: dict[str, str]) -> None:
    found = {
        name: names
        for name, source in sources.items()
        if not name.startswith(OTHER_SYSTEMS) and (names := private_names(source))
    }
    assert found == {name: set(reasons) for name, reasons in PRIVATE.items()}


@pytest.mark.parametrize(
    "source",
    [
        "from torch.distributed.fsdp import DataParallelMeshDims",
        "model.set_separate_reduce_scatter_group(group)",
        "import torch\ntorch.nn.functional.linear_cross_entropy(x, w, y)",
        "fully_shard(block, dp_mesh_dims=dims)",
        "schedule.step(x, loss_kwargs={})",
        "DTensor.from_local(x, mesh, grad_placements=(Partial(),))",
        "def late():\n    torch.distributed.new_group(ranks, sort_ranks=False)",
    ],
)
def test_a_new_name_is_seen(source: str) -> None:
    assert list(new_names(source))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from torch.utils._pytree import tree_map", {"_pytree"}),
        ("import torch.distributed._functional_collectives as funcol", {"_functional_collectives"}),
        ("from torch.distributed.distributed_c10d import _set_pg_timeout as set_timeout", {"_set_pg_timeout"}),
        ("import torch\nops = torch.ops._c10d_functional", {"_c10d_functional"}),
        ("from torch import nn\nfor p in module._parameters.values(): pass", {"_parameters"}),
        ("import torch\ngetattr(state, '_group', None)", {"_group"}),
        ("import torch\nx.__create_chunk_list__()", {"__create_chunk_list__"}),
        ("import os, torch\nos._exit(0)\nself._own = torch.__name__\nsuper().__init__()", set()),
        ("module._parameters", set()),  # of no torch, where none is imported
    ],
)
def test_a_private_name_is_seen(source: str, names: set[str]) -> None:
    assert private_names(source) == names
