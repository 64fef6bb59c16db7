"""Convert a ZeRO checkpoint, so that a run can go on from it with another number of GPUs.

    python -m further.resilience.convert logs/resilience/RUN/bloom-qa-finetuned/checkpoint-20

ZeRO saves a file of optimizer states per rank. DeepSpeed's converter joins them to one file per parameter, a universal
checkpoint, which any number of ranks can load. It needs no GPU. The converted files lie beside the others, because the
Trainer takes a checkpoint's `global_step*` and DeepSpeed its `latest_universal` from the same folder.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from workshop.record.checkpoints import UNIVERSAL, add_to_manifest, fault, manifest, takes_any_number
from workshop.record.errors import InputError


def check_convertible(saved: Path) -> None:
    """Raises InputError where DeepSpeed 0.19.8 would train on with other settings and print no warning.

    From a universal ZeRO-3 checkpoint it gives the first group's weight decay to all parameters. The Trainer makes two
    groups if the configuration has no optimizer.
    """
    import torch  # takes seconds

    states = torch.load(next(saved.glob("*_optim_states.pt")), "cpu", weights_only=False, mmap=True)
    states = states["optimizer_state_dict"]
    groups = states["optimizer_state_dict"]["param_groups"] if states["zero_stage"] == 3 else []
    decays = [group["weight_decay"] for group in groups]
    if len({*decays}) > 1:
        raise InputError(
            f"{saved}: its groups of parameters have weight decays {decays}, and DeepSpeed would load "
            f"{decays[0]} for all; expected one (`optimizer` in the ZeRO-3 configuration)"
        )


def convert(checkpoint: Path) -> None:
    """Add the converted files to a whole checkpoint. Raises InputError for one that cannot be converted."""
    if reason := fault(checkpoint):
        raise InputError(f"{checkpoint}: {reason}; expected a checkpoint that is whole")
    if takes_any_number(manifest(checkpoint)):
        return print(f"{checkpoint}: any number of processes can load it already")
    saved = checkpoint / (checkpoint / "latest").read_text().strip()
    check_convertible(saved)
    converted = saved.with_name(f"{saved.name}_universal")
    (checkpoint / UNIVERSAL).unlink(missing_ok=True)
    shutil.rmtree(converted, ignore_errors=True)  # of a conversion that did not end
    command = ["-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    command += ["--input_folder", str(saved), "--output_folder", str(converted)]
    print("python", *command, flush=True)
    if code := subprocess.run([sys.executable, *command]).returncode:
        shutil.rmtree(converted, ignore_errors=True)
        sys.exit(code)
    add_to_manifest(checkpoint)
    print(f"{checkpoint} can be loaded by any number of processes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise InputError(f"found {len(sys.argv) - 1} arguments, expected a checkpoint's folder")
    convert(Path(sys.argv[1]))
