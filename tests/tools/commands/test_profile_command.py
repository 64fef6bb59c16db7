"""A trace's summary is right about what one sees in Perfetto: what the GPU did, and what it waited for."""

import gzip
import json
from pathlib import Path

from tools.__main__ import main

CPU = """cpu_op 0 3 aten::mm
user_annotation 85 50 Optimizer.step#DeepSpeedCPUAdam.step
user_annotation 0 200 the whole step"""
# Two steps of 100 ms each: category, start, length (ms), name.
GPU = """kernel 0 40 nvjet_sm90_hsh_256x128
kernel 10 8 _forward
kernel 30 20 ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)
kernel 50 10 void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>
gpu_memcpy 60 20 Memcpy DtoH (Device -> Pinned)
gpu_memset 140 2 Memset (Device)
kernel 142 8 multi_tensor_apply_kernel|x
gpu_user_annotation 0 200 Optimizer.step"""
EXPECTED = """Computing or copying (%) | 40.0
Communicating (%) | 10.0
Communicating alone (%) | 5.0
Idle (%) | 55.0
Kernels per step | 4
Median kernel (us) | 10,000.0
Longest gap (ms) | 60.00
What the CPU did in it | Optimizer.step#DeepSpeedCPUAdam.step
communication (ms) | 10.0
copies to and from the CPU (ms) | 10.0
attention (ms) | 4.0
matrix products (ms) | 20.0
optimizer and clipping (ms) | 4.0
softmax and loss (ms) | 5.0
norms, casts and the rest (ms) | 1.0""".splitlines()


def write_trace(folder: Path, events: str) -> None:
    (folder / "profile.txt").write_text("steps 10 to 11, rank 0, 200.0 ms with the profiler running\n")
    found: list[dict] = [{"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1}]
    for category, start, length, name in (line.split(" ", 3) for line in events.splitlines()):
        times = {"ts": 1000 * int(start), "dur": 1000 * int(length)}
        found.append({"ph": "X", "cat": category, "name": name, **times})
    (folder / "profile_trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": found}).encode()))


def test_summary_of_a_trace_is_that_of_its_kernels_and_one_without_is_named(make_run, capsys) -> None:
    write_trace(folder := make_run("r1"), f"{GPU}\n{CPU}")
    assert main(["profile", str(folder)]) == 0
    assert [line.strip("| ") for line in capsys.readouterr().out.splitlines()[4:]] == EXPECTED
    write_trace(folder, CPU)
    assert main(["profile", str(folder)]) == 2
    assert "found 'no kernel of a GPU'" in capsys.readouterr().err
    (folder / "profile_trace.json.gz").write_bytes(b"{")
    assert main(["profile", str(folder)]) == 2
    assert "expected a trace of PyTorch's profiler" in capsys.readouterr().err
