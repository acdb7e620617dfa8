"""What is known of devices: dense peaks from the vendors' data sheets. A device that is not here has no MFU."""

from __future__ import annotations

# FLOP/s; bf16 and fp16 of the matrix units, fp32 without tf32
PEAK_FLOPS = {
    "bf16": {"A100": 312e12, "H100": 989.4e12, "H200": 989.4e12, "B200": 2250e12},
    "fp16": {"V100": 125e12, "A100": 312e12, "H100": 989.4e12, "H200": 989.4e12, "B200": 2250e12},
    "fp32": {"V100": 15.7e12, "A100": 19.5e12, "H100": 66.9e12, "H200": 66.9e12},
}
