"""Peaks of devices by the names that torch gives them; no guess for one that is not known."""

from __future__ import annotations

import pytest
import torch

from pretrain.config import Precision
from pretrain.hardware import device_name, peak_flops

GPU = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312e12),
        ("NVIDIA A100-PCIE-40GB", "fp32", 19.5e12),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4e12),
        ("NVIDIA H100 PCIe", "bf16", 756e12),
        ("NVIDIA H100 NVL", "bf16", 835.5e12),
        ("NVIDIA H200", "fp16", 989.4e12),
        ("NVIDIA B200", "bf16", 2250e12),
        ("NVIDIA B200", "fp32", None),  # editions of its data sheet differ
        ("NVIDIA GB200", "bf16", 2500e12),
        ("NVIDIA L40S", "bf16", 362e12),
        ("NVIDIA L40", "bf16", None),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2e12),
        ("NVIDIA GeForce RTX 3090 Ti", "bf16", None),
        ("Tesla V100-SXM2-32GB", "fp16", 125e12),
        ("Tesla V100-PCIE-16GB", "fp16", 112e12),
        ("Tesla V100-SXM2-32GB", "bf16", None),
        ("AMD Instinct MI250X", "bf16", 191.5e12),
        ("NVIDIA H100 80GB HBM3", "fp64", None),
        ("Voodoo 2", "bf16", None),
    ],
)
def test_peaks(name: str, precision: Precision, peak: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(GPU, precision) == peak
    assert device_name(GPU) == name


def test_a_cpu_has_no_peak() -> None:
    assert peak_flops(torch.device("cpu"), "bf16") is None
    assert device_name(torch.device("cpu")) == "cpu"
