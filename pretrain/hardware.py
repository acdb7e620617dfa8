"""What is known of devices: dense peaks as their vendors state them. A device that is not here has no MFU.

`source` names the vendor's document for a figure; those of H100 were compared with a copy of it, the others are as
commonly quoted. None of them was measured, and those of 16 bits with sparsity in the document are halved. Where
editions of a document differ (fp32 of Blackwell boards) there is no figure.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
from typing import TYPE_CHECKING, NamedTuple

from pretrain.config import Precision

if TYPE_CHECKING:
    import torch


def compiler_missing(on_gpu: bool) -> str:
    """What torch.compile lacks here, in words; "" where it can work. Triton compiles its launchers in C."""
    if on_gpu and not importlib.util.find_spec("triton"):
        return "torch.compile needs triton, which is not installed"
    language, variable, compilers = ("C", "CC", ("gcc", "clang")) if on_gpu else ("C++", "CXX", ("g++", "clang++"))
    if any(compiler and shutil.which(compiler) for compiler in (os.environ.get(variable, ""), *compilers)):
        return ""
    return f"torch.compile needs a {language} compiler, and there is no {' or '.join(compilers)}"


class Device(NamedTuple):
    """A device by a pattern of the name that torch gives it, and its dense peaks in FLOP/s; None: no such unit, or
    unstated.

    16 bits are those of the matrix units, added up in fp32. fp32 is without tf32, which is off here.
    """

    pattern: str
    bf16: float | None
    fp16: float | None
    fp32: float | None
    source: str

    def peak(self, precision: Precision) -> float | None:
        """In FLOP/s; of fp64 nothing is known."""
        return {"bf16": self.bf16, "fp16": self.fp16, "fp32": self.fp32}.get(precision)


# The first that fits counts.
DEVICES = (
    Device("GB200", 2500e12, 2500e12, None, "NVIDIA GB200 NVL72 data sheet, a half of the superchip"),
    Device("B200", 2250e12, 2250e12, None, "NVIDIA HGX B200 data sheet, an eighth of the board"),
    Device("H200 NVL", 835.5e12, 835.5e12, 60e12, "NVIDIA H200 data sheet"),
    Device("H200", 989.4e12, 989.4e12, 66.9e12, "NVIDIA H200 data sheet; the chip of the H100 SXM"),
    Device("H100 NVL", 835.5e12, 835.5e12, 60e12, "NVIDIA H100 data sheet"),
    Device("H100 PCIe", 756e12, 756e12, 51.2e12, "NVIDIA H100 architecture white paper"),
    Device("H100", 989.4e12, 989.4e12, 66.9e12, "NVIDIA H100 architecture white paper (SXM5)"),
    Device("A100", 312e12, 312e12, 19.5e12, "NVIDIA A100 data sheet; 40 and 80 GB, SXM and PCIe alike"),
    Device("L40S", 362e12, 362e12, 91.6e12, "NVIDIA L40S data sheet"),
    Device("RTX 4090", 165.2e12, 165.2e12, 82.6e12, "NVIDIA Ada architecture white paper"),
    Device("RTX 3090(?! Ti)", 71e12, 71e12, 35.6e12, "NVIDIA GA102 architecture white paper"),
    Device("V100S", None, 130e12, 16.4e12, "NVIDIA V100 data sheet"),
    Device("V100-PCIE", None, 112e12, 14e12, "NVIDIA V100 data sheet"),
    Device("V100", None, 125e12, 15.7e12, "NVIDIA V100 data sheet (SXM2)"),
    Device("MI300X", 1307.4e12, 1307.4e12, 163.4e12, "AMD Instinct MI300X data sheet"),
    Device(
        "MI250X",
        191.5e12,
        191.5e12,
        47.85e12,
        "AMD Instinct MI250X data sheet, a half: torch sees each of its two dies",
    ),
)


def find_device(name: str) -> Device | None:
    """What is known of a device by the name that torch gives it."""
    return next((known for known in DEVICES if re.search(known.pattern, name)), None)


def peak_flops(device: torch.device, precision: Precision) -> float | None:
    """The dense peak of this process's device in FLOP/s, or None where the table does not know it: CPUs, and fp64."""
    if device.type != "cuda":
        return None
    import torch  # the command line of the planner needs none

    known = find_device(torch.cuda.get_device_name(device))
    return None if known is None else known.peak(precision)


def device_name(device: torch.device) -> str:
    """What a device is called in records: its product name, or "cpu"."""
    if device.type != "cuda":
        return device.type
    import torch

    return torch.cuda.get_device_name(device)


def processor_name(device: torch.device) -> str:
    """Of a GPU its product name, of a CPU its model."""
    if device.type == "cuda":
        return device_name(device)
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return models[0] if models else platform.machine()
