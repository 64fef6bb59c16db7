"""The table of questions in documents/PLANNER.md, asked anew: `python -m tests.planner_questions`. It tests nothing.

Each question is asked on one core of an idle machine with an empty cache, and once more.
"""

import json
import os
import re
import subprocess
import sys
import time
from tempfile import TemporaryDirectory

from tests.launching import REPO
from tools.tables.markdown import markdown

_LONG = {"4k": "--length 4096 --batch 4", "8k": "--length 8192 --batch 2", "32k": "--length 32768 --batch 1"}
_NODES = "--fabric 50"
_FSDP, _OFFLOAD = "FSDP, checkpointing", "offload, or adapters"
# A question: its arguments, and what an expert takes, as we read it in public threads and guides.
QUESTIONS = {
    "BLOOM-7b1, 4 H200 (README.md)": ("bloom-7b1 --gpus 4 --gpu h200", "FSDP or ZeRO-2"),
    **{f"Llama 3.1 8B, {n} H100, 4k": (f"llama-3.1-8b --gpus {n} {_LONG['4k']}", _FSDP) for n in (2, 4, 8)},
    "Llama 3.1 8B, 8 H100, 8k": (f"llama-3.1-8b --gpus 8 {_LONG['8k']}", _FSDP),
    **{f"Llama 3.1 8B, {n} H100, 32k": (f"llama-3.1-8b --gpus {n} {_LONG['32k']}", _FSDP) for n in (2, 4, 8)},
    "Llama 3.1 70B, LoRA, 8 H100": ("llama-3.1-70b --gpus 8 --batch 2 --method lora", "FSDP"),
    "Llama 3.1 70B, full, 16 H100": (f"llama-3.1-70b --gpus 16 --nodes 2 {_NODES} --batch 2 --method full", _FSDP),
    "Llama 3.1 70B, full, 64 H100": (f"llama-3.1-70b --gpus 64 --nodes 8 {_NODES} --batch 2 --method full", _FSDP),
    "Llama 3.1 70B, QLoRA, 4 RTX 4090": (
        "llama-3.1-70b --gpus 4 --gpu rtx-4090 --batch 1 --method qlora",
        "FSDP-QLoRA, if the computer has the memory",
    ),
    "Qwen2.5 7B, one A100 40 GB": ("qwen-2.5-7b --gpu a100-40gb", _OFFLOAD),
    "Qwen2.5 7B, one L40S": ("qwen-2.5-7b --gpu l40s", _OFFLOAD),
    "Qwen2.5 7B, one RTX 4090": ("qwen-2.5-7b --gpu rtx-4090", "adapters"),
    "Qwen2.5 7B, one V100": ("qwen-2.5-7b --gpu v100-32gb", _OFFLOAD),
    "BLOOM-7b1, 4 V100": ("bloom-7b1 --gpus 4 --gpu v100-32gb", _OFFLOAD),
    "Mistral 7B, QLoRA, RTX 3090": ("mistral-7b --gpu rtx-3090 --method qlora", "one GPU"),
    "Llama 3.1 8B, LoRA, RTX 4090": ("llama-3.1-8b --gpu rtx-4090 --batch 2 --method lora", "one GPU"),
    "Llama 3.1 8B, QLoRA, RTX 4090": ("llama-3.1-8b --gpu rtx-4090 --batch 2 --method qlora", "one GPU"),
    "Llama 3.1 8B, LoRA, one H100, 4k": ("llama-3.1-8b --length 4096 --batch 8 --method lora", "one GPU"),
    "Llama 3.1 8B, largest micro-batch, 4 H100": ("llama-3.1-8b --gpus 4 --largest", "FSDP or ZeRO-2"),
    "Gemma 3 4B (its text decoder), one H100": ("gemma-3-4b", "one GPU, checkpointing"),
    "Phi-4, 4 H100": ("phi-4 --gpus 4", _FSDP),
    "Granite 3.3 8B, 2 H100": ("granite-3.3-8b --gpus 2", _FSDP),
    "Qwen3-30B-A3B, 8 H100": ("qwen-3-30b-a3b --gpus 8", _FSDP),
    "Mistral Nemo 12B, 4 H100": ("mistral-nemo-12b --gpus 4", _FSDP),
    "Falcon-H1 7B, 2 H100": ("falcon-h1-7b --gpus 2", _FSDP),
    "Llama 4 Scout, 16 H100": (f"llama-4-scout --gpus 16 --nodes 2 {_NODES}", "more GPUs, or offload"),
    "GPT-2, one T4": ("gpt2 --gpu t4", "one GPU"),
}
# By question: what others publish, and of which strategy and micro-batches our allocated memory stands beside it.
PUBLISHED = {
    "Llama 3.1 8B, 8 H100, 8k": ("torchtitan, compiled: 6,667 tokens/s per GPU", "", ()),
    "Llama 3.1 70B, LoRA, 8 H100": ("torchtune: 27.6 GiB", "LoRA full_shard", ("2 x 1",)),
    "Llama 3.1 8B, LoRA, RTX 4090": ("torchtune: 16.2 GiB", "LoRA one GPU", ("1 x 2", "2 x 1")),
    "Llama 3.1 8B, QLoRA, RTX 4090": ("torchtune: 7.4 GiB", "QLoRA one GPU", ("1 x 2", "2 x 1")),
    "Llama 3.1 8B, LoRA, one H100, 4k": ("AutoModel, its own kernels: 12,473 tokens/s", "", ()),
}
# In the text of an answer: the first choice, and what may be cheaper; or why there is none.
_FIRST = re.compile(r"First: (none)?\.? ?(.+?)(?: rows, [\d.,]+ GPU-hours\.|: )")
_CHEAPER = re.compile(r"([\d.]+ times cheaper if it fits: .+?) rows\.")


def ask(arguments: str, cache: str, form: str) -> tuple[str, float]:
    """The answer, and its seconds on one core."""
    gpu = [] if "--gpu " in arguments else ["--gpu", "h100-80gb"]
    command = [*("taskset", "--cpu-list", "0", sys.executable, "-m", "tools", "plan", "model"), *arguments.split()]
    start_s, environ = time.monotonic(), os.environ | {"XDG_CACHE_HOME": cache}
    asked = subprocess.run([*command, *gpu, "--format", form], cwd=REPO, env=environ, capture_output=True, text=True)
    return asked.stdout, time.monotonic() - start_s


def row(name: str, cache: str) -> list[str]:
    arguments, expert = QUESTIONS[name]
    answer, new_s = ask(arguments, cache, "json")
    words, again_s = ask(arguments, cache, "text")
    every = json.loads(answer)["candidates"]
    first, gpus = every[0], json.loads(answer)["question"]["gpus"]
    none, choice = _FIRST.search(words := " ".join(words.split())).groups()
    choice = "; ".join([f"none: {choice}" if none else choice, *_CHEAPER.findall(words)])
    text, strategy, beside = PUBLISHED.get(name, ("", "", ()))
    for one in every:
        if one["strategy"] == strategy and one["checkpointing"] and one["micro_batches"] in beside:
            text += f"; ours {one['peak_allocated_mib']['expected'] / 1024:.1f} allocated, {one['micro_batches']}"
    hours = first["gpu_hours"]["expected"]
    memory = f"{first['needed_mib'] / 1024:.1f}", f"{first['least_cpu_gib']:,.0f}"
    speed = (f"{float(f'{value:.2g}'):,g}" for value in (first["tokens_per_second"]["expected"] / gpus, hours))
    return [name, choice, expert, *memory, *speed, f"{new_s:.0f}", f"{again_s:.1f}", text]


if __name__ == "__main__":
    titles = ["Question", "First", "An expert takes", "GiB", "CPU (GiB)", "Tokens/s per GPU", "GPU-hours"]
    titles += ["New (s)", "Again (s)"]
    with TemporaryDirectory() as cache:
        rows = [row(name, cache) for name in QUESTIONS]
    print(markdown([*titles, "Published"], rows))
