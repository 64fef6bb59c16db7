"""An answer must not depend on the batch, the padding or the number of ranks it was generated with."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.bloom.modeling_bloom import BloomBlock

from tests.trainings_on_ranks import Ranks, training
from tests.workshop.data.forms import load_squad
from workshop.data.encoding import load_tokenizer
from workshop.data.forms import SAMPLE_DIR
from workshop.private_names import end_process
from workshop.record.run_record import read_summary
from workshop.training import generation
from workshop.training.callbacks import StepRecorder
from workshop.training.generation import ScoreRecorder, answer_questions

EXAMPLES = load_squad("sample", "validation")[:9]  # odd: two ranks cannot share them equally
TOKENIZER = load_tokenizer("sample")
EARLY_STOP = "mp"  # a token the tiny model says soon in some answers and never in others


def tiny_bloom() -> PreTrainedModel:
    """Random weights, large enough that answers differ from each other; in training mode, as after training."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(SAMPLE_DIR / "tiny_bloom", initializer_range=0.6)
    return AutoModelForCausalLM.from_config(config).train()


def generate(model, examples=EXAMPLES, **settings):
    own = {"max_length": 300, "max_new_tokens": 12, "batch_size": 8, "eval_batch_size": 0}
    return answer_questions(SimpleNamespace(**own | settings), torch.device("cpu"), model, TOKENIZER, examples)


def test_neither_padding_nor_sorting_by_length_changes_or_mixes_up_the_answers(monkeypatch):
    """Every batch is progress, or answering for longer than HANG_TIMEOUT_S would be ended as a hang."""
    alone, few, batches = {}, EXAMPLES[:5], []
    for example in few:
        alone |= generate(tiny_bloom(), [example])
    assert list(alone) == [example["id"] for example in few]
    assert len(set(alone.values())) > 2  # a model that always says the same would prove nothing
    monkeypatch.setattr(generation, "progress", lambda: batches.append("answered"))
    model = tiny_bloom()
    assert generate(model, few, batch_size=2) == alone
    assert len(batches) == 3
    assert model.training, "it goes on in the mode it was in"


def test_scores_on_the_way_are_printed_and_written_as_they_come_and_belong_to_no_step(tmp_path, monkeypatch, capsys):
    """The next step lasted 27 s instead of 0.7 with the answers to 1,000 questions in it."""
    recorder, begun_s, found = StepRecorder(tmp_path / "steps.csv"), [], iter([12.5, 25.0])

    def answered(*_: object) -> dict[str, float]:
        begun_s.append(recorder._start_s)
        return {"exact_match": next(found)}

    monkeypatch.setattr(generation, "scores", answered)
    callback = ScoreRecorder(SimpleNamespace(run_dir=tmp_path, generate_steps=2), recorder, EXAMPLES[:8])
    for step in range(1, 6):  # of ten: the run ends early
        state = SimpleNamespace(global_step=step, is_world_process_zero=True)
        callback.on_step_end(None, state, None, model=None, processing_class=None)
    assert read_summary(tmp_path) == {"exact_match_by_step": {"2": 12.5, "4": 25.0}}
    assert capsys.readouterr().out == "step 2: exact match 12.5 % of 8\nstep 4: exact match 25.0 % of 8\n"
    assert begun_s[0] < begun_s[1] < recorder._start_s


def test_two_ranks_answer_as_one_process_plain_and_sharded(ranks: Ranks, tmp_path: Path):
    ranks.train([training(tmp_path, "workshop", command=[__file__, tmp_path])])
    both = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    expected = both[0]["one process"]
    assert len({len(TOKENIZER(answer)["input_ids"]) for answer in expected.values()}) > 2  # ranks end at unlike steps
    for answers in both:
        assert answers == dict.fromkeys(("one process", "ddp", "fsdp2", "fsdp1"), expected)


def fsdp2(model: torch.nn.Module) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp1(model: torch.nn.Module) -> torch.nn.Module:
    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({BloomBlock}), device_id=torch.device("cpu"), use_orig_params=True
    )


if __name__ == "__main__":
    TOKENIZER.eos_token = EARLY_STOP
    answers = {"one process": generate(tiny_bloom(), batch_size=2)}
    dist.init_process_group("gloo")
    for name, wrap in {"ddp": DistributedDataParallel, "fsdp2": fsdp2, "fsdp1": fsdp1}.items():
        model = wrap(tiny_bloom())
        with torch.no_grad():  # as an evaluation, which sets FSDP1's units up and leaves FSDP2's embedding gathered
            model(input_ids=torch.tensor([[5, 6]]))
        answers[name] = generate(model, batch_size=2)
    Path(sys.argv[1], f"rank{dist.get_rank()}.json").write_text(json.dumps(answers))
    dist.barrier()
    end_process()
