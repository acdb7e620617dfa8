"""Configurations and machines for the tests of the planner's cost model."""

from __future__ import annotations

from typing import Any

from pretrain.config import RunConfig
from pretrain.plan.machines.cluster import Cluster

GPT = {
    "num_layers": 16,
    "hidden_size": 2048,
    "num_heads": 16,
    "sequence_length": 1024,
    "padded_vocab_size": 51200,
    "norm": "layernorm",
    "activation": "gelu",
    "positions": "learned",
    "bias": True,
}


def config(
    model: dict[str, Any] | None = None,
    micro_batch_size: int = 1,
    global_batch_size: int = 64,
    training: dict[str, Any] | None = None,
    **parallel: Any,
) -> RunConfig:
    """A run in one layout."""
    return RunConfig.model_validate(
        {
            "model": GPT | (model or {}),
            "optimizer": {"learning_rate": 1e-4},
            "training": {
                "num_steps": 10,
                "global_batch_size": global_batch_size,
                "micro_batch_size": micro_batch_size,
                "precision": "bf16",
                "compile": False,
            }
            | (training or {}),
            "parallel": parallel,
            "checkpoint": {"every_steps": 5},
            "evaluation": {"every_steps": 5},
        }
    )


def cluster(
    peak: float = 300e12,
    memory_bandwidth: float = 2e12,
    network: float = 100e9,
    latency: float = 0.0,
    launch: float = 0.0,
    cores: int | None = None,
    **more: Any,
) -> Cluster:
    """One network for all devices, everything at its full rate."""
    return Cluster.model_validate(
        {
            "name": "test",
            "description": "a machine of round figures",
            "devices_per_node": 8,
            "device": {
                "name": "test",
                "memory_gib": 80,
                "memory_bandwidth": memory_bandwidth,
                "peak": {"bf16": peak, "fp16": peak, "fp32": peak / 8},
            },
            "host": {"memory_gib": 1024, "memory_bandwidth": 300e9, "link_bandwidth": 25e9},
            "networks": [{"name": "network", "bandwidth": network, "latency": latency}],
            "efficiency": {"seconds_per_operation": launch},
            "cores": None if cores is None else {"number": cores},
        }
        | more
    )
