"""GPUs that a plan can be made for, by their data sheets."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace

from tools.errors import InputError
from tools.logs.mfu import PEAK_TFLOPS


@dataclass(frozen=True)
class Gpu:
    """One type.

    Attributes:
        driver_name: as nvidia-smi and run.json name it, the key of its operations per second (tools/logs/mfu.py).
        memory_mib: nvidia-smi's memory.total.
        memory_gb_per_s, link_gb_per_s, host_gb_per_s: of its own memory; NVLink to the node's others, per direction;
            PCIe to the CPU's memory, per direction. 10^9 bytes.
        per_node: GPUs on the board that it comes on.
        tdp_w: the most that it may use for long, without its server.
        node_gib: CPU memory of NVIDIA's own server with that board; another's may have less.
    """

    driver_name: str
    memory_mib: int
    memory_gb_per_s: float
    link_gb_per_s: float
    host_gb_per_s: float
    per_node: int
    tdp_w: int
    node_gib: float

    def flops_per_s(self, precision: str) -> float:
        """Raises InputError for a precision that it does not have."""
        peaks = PEAK_TFLOPS[self.driver_name]
        if precision not in peaks:
            raise InputError(f"{self.driver_name} has no {precision}; expected {', '.join(peaks)}")
        return peaks[precision] * 1e12


# memory.total: of the H200 from gpu_memory.csv of logs/reference; of the others as nvidia-smi prints it in issues and
# manuals of public repositories, the least where drivers differ (an A100 with 80 GB: 81,251 or 81,920 MiB). The rates
# are the data sheets', SXM boards; they were compared on 2026-11-22 with pages that quote the sheets, not with NVIDIA's
# PDF files. A sheet prints NVLink (900, 900, 600, 600, 300 GB/s) and PCIe as the sum of both directions. The servers
# are DGX H200, H100, A100 (640 and 320 GB) and DGX-1: 2 TB, 2 TB, 2 TB, 1 TB and 512 GB by their data sheets. NVIDIA's
# data sheets: H200, 2024: 4.8 TB/s; H100, 2023, H100 SXM: 3.35 TB/s; A100, 1758950-r4, 2021, 80GB SXM: 2,039 GB/s;
# A100, 2020, 40GB SXM: 1,555 GB/s; V100, 2020, SXM2: 900 GB/s.
GPUS = {
    "h200": Gpu("NVIDIA H200", 143_771, 4_800, 450, 64, 8, 700, 2_048),
    "h100-80gb": Gpu("NVIDIA H100 80GB HBM3", 81_559, 3_350, 450, 64, 8, 700, 2_048),
    "a100-80gb": Gpu("NVIDIA A100-SXM4-80GB", 81_251, 2_039, 300, 32, 8, 400, 2_048),
    "a100-40gb": Gpu("NVIDIA A100-SXM4-40GB", 40_536, 1_555, 300, 32, 8, 400, 1_024),
    "v100-32gb": Gpu("Tesla V100-SXM2-32GB", 32_480, 900, 150, 16, 8, 300, 512),
}


def named(name: str, node_gib: float | None = None) -> Gpu:
    """Args: node_gib: CPU memory of the nodes; None: the server's. Raises InputError for an unknown name."""
    if name not in GPUS:
        raise InputError(f"--gpu {name}: unknown; expected one of {', '.join(GPUS)}")
    if node_gib is None:
        return GPUS[name]
    if not 0 < node_gib < float("inf"):
        raise InputError(f"--node-memory {node_gib:g}: expected more than 0 GiB")
    return replace(GPUS[name], node_gib=node_gib)


def at_hand() -> str | None:
    """The table's name of this machine's GPU, by nvidia-smi; None without one, or of another type."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except subprocess.TimeoutExpired:  # a driver in trouble: no reason to stop a plan
        return None
    names = {line.strip() for line in answer.stdout.splitlines()}
    return next((name for name, gpu in GPUS.items() if names == {gpu.driver_name}), None)
