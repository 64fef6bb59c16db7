"""A stream gives every row once to one rank, also to another number of ranks after a checkpoint."""

import json
from pathlib import Path

from tests.launching import record
from tests.trainings_on_ranks import Ranks, training
from workshop.data.encoding import load_tokenizer

SCRIPT = [Path(__file__).parent / "rows_seen.py"]
SIZES = {"EVAL_SIZE": "4", "BATCH_SIZE": "2", "GRAD_ACC": "2", "MAX_LENGTH": "32"}
STREAM = SIZES | {"STREAMING": "true", "SAVE": "steps"}


def write_rows(path: Path, count: int) -> str:
    rows = [{"prompt": f"{number}: who owns this boat?", "completion": " Ann."} for number in range(count)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def seen(run: Path) -> list[int]:
    """The numbers of the rows that the model was given, in order."""
    lines = (run / "rows_seen").read_text().splitlines()
    texts = load_tokenizer("sample").batch_decode([json.loads(line) for line in lines])
    return sorted(int(text.partition(":")[0]) for text in texts)


def test_every_row_is_trained_on_once_also_after_a_resume(ranks: Ranks, tmp_path: Path) -> None:
    """Four rows are held out; of the others two ranks take 24, one rank the last 12, and two begin again."""
    data = {"DATASET": write_rows(tmp_path / "boats.jsonl", 40)}
    found, resumed = [], {}
    for number, (world_size, last_step) in enumerate([(2, 3), (1, 6), (2, 7)]):
        run = tmp_path / str(number)
        steps = {"MAX_STEPS": str(last_step), "SAVE_STEPS": str(last_step)}
        ranks.train(
            [training(run, "fsdp", "fsdp_configs/ddp.json", SCRIPT, **STREAM, **data, **steps, **resumed)],
            ranks=world_size,
        )
        resumed = {"RESUME_FROM": str(run / f"bloom-qa-finetuned/checkpoint-{last_step}")}
        found.append(seen(run))
    assert found == [[*range(4, 28)], [*range(28, 40)], [*range(4, 12)]]
    facts = record(tmp_path / "0")
    assert (facts["train_examples"], facts["eval_examples"], facts["steps_per_epoch"]) == (24, 4, 3)

    run = tmp_path / "after_the_last_step"
    ranks.train([training(run, "fsdp", "fsdp_configs/ddp.json", SCRIPT, **STREAM, **data, **steps, **resumed)])
    assert not (run / "steps.csv").exists()
    assert not (run / "rows_seen").exists()
