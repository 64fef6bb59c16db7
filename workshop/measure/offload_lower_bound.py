"""The least time of a step with CPU offload on this machine, and a measured run beside it.

    python -m workshop.measure.offload_lower_bound RUN          # on the machine where the run was made
    python -m workshop.measure.offload_lower_bound RUN --mib 256 --repeats 3

The GPU computes, weights go to it, gradients come back, the processor updates. Each has a rate, measured here, and an
amount, from model and configuration. The slowest part is the floor, reached if all overlap fully; without overlap the
step takes their sum.

What DeepSpeed 0.19.8 does in a step (runtime/zero/stage_1_and_2.py, stage3.py), for P parameters on N GPUs of one host,
A micro-batches, half precision of 2 bytes (fp32: 4), r: stage 3's `ratio`, the share of the optimizer on the CPU:

    gradients to the CPU   stages 1, 2: 4P/N in fp32; with A > 1 also A x 2P/N, as they are added up
                           stage 3: A x 2P/N, then r x 4P/N in fp32
    back to the GPU        stages 1, 2: A x 2P/N with A > 1, to add to; stage 3: A x 2P/N, for their norm or to add to
    weights to the GPU     parameters offloaded: 2A x 2P/N, once for forward and once for backward
                           else those that were updated: stages 1, 2: 2P/N; stage 3: r x 2P/N from pageable memory,
                           because PyTorch makes half precision of them in a buffer of its own
    scale the gradients    8 r P bytes of CPU memory, read and written: clipping and the loss scale
    update                 r P parameters by cpu_adam, on the processors that all GPUs share
    make half precision    (4 + 2) r P bytes of CPU memory
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from workshop.measure import machine_rates
from workshop.measure.machine_rates import NOT_MEASURED, UNIT_OF, UNITS, Rates
from workshop.run_folder.errors import InputError
from workshop.run_folder.exercises import REPO, find_exercise
from workshop.run_folder.flops import flops_per_token
from workshop.run_folder.json_file import read_json
from workshop.run_folder.printable import markdown

FP32_BYTES = 4


# Parts of a step, in its order, and the rate that each takes.
PARTS = {
    "computing": "matrix",
    "to the CPU": "to cpu",
    "scale the gradients": "cpu memory",
    "update": "adam",
    "make half precision": "cpu memory",
    "to the GPU": "to gpu",
    "to the GPU, pageable": "to gpu pageable",
}


def work_of(record: dict[str, Any], config: dict[str, Any], logit_share: float = 1) -> dict[str, float]:
    """Return the amount of each of PARTS in a step of a run with its DeepSpeed configuration.

    In bytes, parameters and operations: a GPU's own bytes over PCIe and matrix products, forward and backward; the
    bytes of CPU memory, read and written, and the parameters of all GPUs. `logit_share` of the positions have their
    logits computed (LOGITS=labelled: not all). Raises InputError where nothing is offloaded.
    """
    zero = config.get("zero_optimization", {})
    stage, optimizer, weights = (zero.get(key) or {} for key in ("stage", "offload_optimizer", "offload_param"))
    if optimizer.get("device") != "cpu":
        raise InputError(f"config {record['config']}: offload_optimizer is not on the CPU; expected a run that is")
    settings, model = record["settings"], record["model"]
    parameters, accumulation = model["parameters"], settings["grad_acc"]
    on_cpu = optimizer.get("ratio", 1.0) if stage == 3 else 1.0
    width = 2 if settings["fp16"] or settings["bf16"] else FP32_BYTES
    share = parameters / record["world_size"]
    added = width * share * (accumulation if stage == 3 or accumulation > 1 else 0)
    to_gpu = to_gpu_pageable = 0.0
    if weights.get("device") == "cpu":
        to_gpu = 2 * accumulation * width * share
    elif stage == 3:
        to_gpu_pageable = on_cpu * width * share
    else:
        to_gpu = width * share
    tokens = settings["batch_size"] * accumulation * settings["max_length"]
    per_token = flops_per_token(parameters, model["layers"], model["hidden_size"], settings["max_length"])
    skipped = 6 * model["embedding_parameters"] * (1 - logit_share)
    return {
        "computing": (per_token - skipped) * tokens,
        "to the CPU": added + on_cpu * FP32_BYTES * share,
        "scale the gradients": 2 * FP32_BYTES * on_cpu * parameters,
        "update": on_cpu * parameters,
        "make half precision": (FP32_BYTES + width) * on_cpu * parameters,
        "to the GPU": to_gpu + added,
        "to the GPU, pageable": to_gpu_pageable,
    }


def report(work: dict[str, float], rates: Rates, step_s: float | None, elsewhere: str = "") -> list[str]:
    """Return lines with the rates, the arithmetic, the floor, and the measured step.

    Args:
        elsewhere: on which GPUs the step was measured, if not on this machine's: no ratio then.
    """
    rows, known, missing = [], [], False
    for name, amount in work.items():
        if not amount:
            continue
        unit, rate = UNIT_OF[PARTS[name]], rates[PARTS[name]]
        short = f"{amount / UNITS[unit]:.4g}"
        if rate:
            known.append(amount / rate)
            taken = f"{short} / {rate / UNITS[unit]:.4g} = {amount / rate:.3g}"
        else:
            taken, missing = NOT_MEASURED, True
        rows.append((name, f"{short} {unit.removesuffix('/s')}", taken))
    lines = [*machine_rates.table(rates), "", *markdown(("part of a step", "amount", "seconds"), rows).split("\n")]
    partly = ", of the parts that were measured" if missing else ""
    lines += ["", f"floor, if all parts overlap: {max(known):.3g} s{partly}; one after the other: {sum(known):.3g} s"]
    if step_s and elsewhere:
        lines.append(f"measured step: {step_s:.3g} s, but on {elsewhere}: measure the rates there")
    elif step_s:
        over = f"{step_s / max(known):.2f} times the floor, {step_s / sum(known):.2f} times one after the other"
        lines.append(f"measured step: {step_s:.3g} s, {over}")
    return lines


def run_facts(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, float]]:
    """Return run.json, the configuration that it names, and summary.json or {}.

    Raises InputError for a folder that is no run with a DeepSpeed configuration.
    """
    if not (folder / "run.json").is_file():
        raise InputError(f"{folder}: found no run.json, expected a run folder such as logs/EXERCISE/RUN")
    record = read_json(folder / "run.json")
    missing = [key for key in ("exercise", "config", "world_size", "settings", "model") if not record.get(key)]
    if missing:
        raise InputError(f"{folder}/run.json: found no {missing[0]}, expected a run that trained with DeepSpeed")
    names = (f"{record['config']}.json", f"ds_{record['config']}.json")
    exercise = find_exercise(record["exercise"], "*", REPO) or REPO / record["exercise"]
    folders = (exercise, exercise / "ds_configs", exercise / "ds_configs/tuning")
    paths = [place / name for place in folders for name in names if (place / name).is_file()]
    if not paths:
        raise InputError(f"{folder}/run.json: config {record['config']}: expected a file of {exercise}")
    summary = json.loads((folder / "summary.json").read_text()) if (folder / "summary.json").exists() else {}
    return record, read_json(paths[0]), summary


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.measure.offload_lower_bound",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="run folder of an exercise with offload")
    parser.add_argument("--mib", type=int, default=2048, help="size of the buffers that are copied (MiB)")
    parser.add_argument("--repeats", type=int, default=10, help="of each measurement; the fastest counts")
    options = parser.parse_args(arguments)
    record, config, summary = run_facts(options.run)
    speed = summary.get("train/steps_per_second")
    logits, tokens = (summary.get(f"train/{name}_per_second") for name in ("logit_positions", "tokens"))
    work = work_of(record, config, logits / tokens if logits and tokens else 1)
    here = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    theirs = record.get("gpu_names") or ["no GPU"]
    elsewhere = "" if set(theirs) == set(here or ["no GPU"]) else f"{len(theirs)} x {theirs[0]}"
    rates = machine_rates.measure(options.mib, options.repeats)
    print("\n".join(report(work, rates, 1 / speed if speed else None, elsewhere)))


if __name__ == "__main__":
    main(sys.argv[1:])
