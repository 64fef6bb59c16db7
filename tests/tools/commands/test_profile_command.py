"""A trace's summary is right about what one sees in Perfetto: what the GPU did, and what it waited for."""

import gzip
import json
from pathlib import Path

import pytest

from tools.__main__ import main

HEADING = "steps 10 to 11, rank 0, 200.0 ms with the profiler running\n"
STEPS = "step,step_time_s,tokens,real_tokens,loss,epoch\n" + "".join(f"{n},0.0{n},8,8,1.0,0.1\n" for n in range(1, 10))
# Two steps of 100 ms each: what the GPU ran, what the CPU did.
GPU = [
    ("kernel", "nvjet_sm90_hsh_256x128", 0, 40),
    ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 30, 20),
    ("kernel", "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>", 50, 10),
    ("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 60, 20),
    ("gpu_memset", "Memset (Device)", 140, 2),
    ("kernel", "multi_tensor_apply_kernel|x", 142, 8),
    ("gpu_user_annotation", "Optimizer.step", 0, 200),  # is about kernels, and no kernel
]
CPU = [
    ("cpu_op", "aten::mm", 0, 3),
    ("user_annotation", "Optimizer.step#DeepSpeedCPUAdam.step", 85, 50),
    ("user_annotation", "the whole step", 0, 200),
]


@pytest.fixture
def profiled(make_run):
    def profiled(events: list, name: str = "20261121-094500-j1", rung: str = "0_textbook") -> Path:
        folder = make_run(name, {"settings": {"rung": rung}}, {"warmup_steps": 5}, **{"steps.csv": STEPS})
        (folder / "profile.txt").write_text(HEADING)
        found = [
            {"ph": "X", "cat": cat, "name": name, "ts": 1000 * ts, "dur": 1000 * ms} for cat, name, ts, ms in events
        ]
        found += [{"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1}, {"ph": "M", "name": "process_name", "ts": 0}]
        (folder / "profile_trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": found}).encode()))
        return folder

    return profiled


def test_summary_of_a_trace_is_that_of_its_kernels(profiled, capsys):
    other = profiled(GPU[:1] + CPU, "20261121-094600-j2", "7_compile")
    assert main(["profile", str(profiled(GPU + CPU)), str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = dict(line.strip("| ").split(" | ", 1) for line in lines if line.count(" | ") == 2)
    assert rows.pop("Profile") == "0_textbook | 7_compile"
    assert {label: cells.split(" | ")[0] for label, cells in rows.items()} == {
        "Step (ms), without the profiler": "75.0",
        "Step (ms), with it": "100.0",
        "Computing or copying (%)": "40.0",
        "Communicating (%)": "10.0",
        "Communicating alone (%)": "5.0",
        "Idle (%)": "55.0",
        "Kernels per step": "3",
        "Median kernel (us)": "15,000.0",
        "Longest gap (ms)": "60.00",
        "What the CPU did in it": "Optimizer.step#DeepSpeedCPUAdam.step",
        "communication (ms)": "10.0",
        "copies to and from the CPU (ms)": "10.0",
        "attention (ms)": "0.0",
        "matrix products (ms)": "20.0",
        "optimizer and clipping (ms)": "4.0",
        "softmax and loss (ms)": "5.0",
        "norms, casts and the rest (ms)": "1.0",
    }
    costliest = [line.split(" | ")[1:] for line in lines if line.startswith("| 0_textbook | ")]
    assert [row[0] for row in costliest[:4]] == [
        *("matrix products", "communication", "copies to and from the CPU", "softmax and loss")
    ]
    assert costliest[4][:2] == ["optimizer and clipping", "`multi_tensor_apply_kernel/x`"]


@pytest.mark.parametrize(
    ("events", "change", "found"),
    [
        (CPU, None, "profile_trace.json.gz: found 'no kernel of a GPU', expected a run on a GPU"),
        (GPU, ("profile.txt", b"busy\n"), "profile.txt:1: found 'busy', expected the steps and their time"),
        (GPU, ("profile_trace.json.gz", b"{"), "expected a trace of PyTorch's profiler"),
        (GPU, ("profile_trace.json.gz", gzip.compress(b"{}")), "expected a trace of PyTorch's profiler"),
        (GPU, ("profile_trace.json.gz", None), "found 'no profile_trace.json.gz', expected a run with PROFILE=10:10"),
    ],
    ids=["a CPU's", "no heading", "cut off", "another JSON", "none"],
)
def test_trace_that_says_nothing_of_a_gpu_is_named(profiled, capsys, events, change, found):
    folder = profiled(events)
    if change:
        (folder / change[0]).unlink()
        if change[1] is not None:
            (folder / change[0]).write_bytes(change[1])
    assert main(["profile", str(folder)]) == 2
    assert found in capsys.readouterr().err
