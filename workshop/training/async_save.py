"""FSDP2's sharded checkpoints, written while the training continues: `"async_save": true` in the configuration.

accelerate writes the same two folders with `dcp.save`, and the training waits for the disk. `dcp.async_save` returns
when it has copied the rank's shards into CPU memory; a thread writes the copy. Resuming reads both alike. When both
folders are written, CheckpointWriter (saving.py) makes the checkpoint whole.
"""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from accelerate.utils import is_peft_model
from peft import get_peft_model_state_dict
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from transformers import Trainer

from workshop.private_names import save_states_by

FOLDERS = {"model": "pytorch_model_fsdp_0", "optimizer": "optimizer_0"}  # accelerate's names


class AsyncSaver:
    """Replaces the Trainer's method that saves the optimizer and, under FSDP, the sharded weights."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        # A group for each of the two threads, which call collectives beside the training; NCCL's would need GPU memory.
        self.groups = {name: dist.new_group(backend="gloo") for name in FOLDERS}
        # With a GPU the first save allocates pinned memory, which takes seconds; later saves reuse it. DefaultStager
        # would free it after each save (torch 2.11).
        gpu = torch.cuda.is_available()
        self.stagers = {name: BlockingAsyncStager(cache_staged_state_dict=gpu) for name in FOLDERS}
        self.writes: list[Future[Any]] = []
        save_states_by(trainer, self.save)

    def save(self, folder: str) -> None:
        """Copy the shards, begin to write them, and save the learning rate's schedule. Collective."""
        trainer = self.trainer
        Path(folder).mkdir(parents=True, exist_ok=True)
        model = trainer.model
        weights = get_peft_model_state_dict(model) if is_peft_model(model) else get_model_state_dict(model)
        states = {"model": weights, "optimizer": get_optimizer_state_dict(model, trainer.optimizer)}
        self.writes = [
            dcp.async_save(
                {name: state},
                # Nothing is to be copied ahead: it would make the thread wait for the GPU at every tensor.
                storage_writer=dcp.FileSystemWriter(Path(folder, FOLDERS[name]), per_thread_copy_ahead=0),
                process_group=self.groups[name],
                async_stager=self.stagers[name],
            )
            for name, state in states.items()
        ]
        if trainer.args.should_save:
            torch.save(trainer.lr_scheduler.state_dict(), Path(folder, "scheduler.pt"))

    def wait(self) -> dist.ProcessGroup:
        """Return, when this rank has written both folders, a group that is free. Raises CheckpointException."""
        for write in self.writes:
            write.result()
        return self.groups["model"]
