"""What compiling leaves behind must not stop a step in the middle of the training."""

import gc

import torch

from workshop.kernels.fast_models.compilation import freeze_heap_after_compiling


def test_collector_looks_through_the_compiler_s_objects_once_and_not_again() -> None:
    model = torch.nn.Linear(2, 2)
    freeze_heap_after_compiling(model)
    gc.unfreeze()
    try:
        model.eval()(torch.ones(2))  # an evaluation compiles nothing
        model.train()
        for _ in range(2):
            model(torch.ones(2))
        assert gc.get_freeze_count() == 0  # the backward pass may not be compiled yet
        model(torch.ones(2))
        assert gc.get_freeze_count() > 10_000
        gc.unfreeze()
        model(torch.ones(2))
        assert gc.get_freeze_count() == 0  # once
    finally:
        gc.unfreeze()
