"""Table 21: the formulas by hand, and what leaves a node."""

from pathlib import Path

import pytest

from tools.errors import LogError
from tools.logs.communication import messages_of
from tools.logs.figures import figure
from tools.logs.runs import read_run
from workshop.run_folder import collectives

REPO = Path(__file__).parents[3]
OLDER_HEADER, HEADER = "step,collective,group,dtype,bytes,calls\n", ",".join(collectives.COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("sharding", "accumulation", "parts"),
    [
        ({"method": "ddp"}, 1, 2 * 3 / 4),
        ({"method": "ddp"}, 4, 2 * 3 / 4),
        ({"method": "zero1"}, 4, 2 * 3 / 4),
        ({"method": "zero2"}, 4, 5 * 3 / 4),
        # DeepSpeed's default: an all-reduce in the place of each reduce-scatter.
        ({"method": "zero1", "all_reduces": True}, 4, 3 * 3 / 4),
        ({"method": "zero2", "all_reduces": True}, 4, 9 * 3 / 4),
        ({"method": "zero3"}, 1, 3 * 3 / 4),
        ({"method": "zero3"}, 4, 12 * 3 / 4),
        ({"method": "fsdp2", "reshard_after_forward": True}, 4, 9 * 3 / 4),
        ({"method": "fsdp2", "reshard_after_forward": False}, 4, 5 * 3 / 4),
        # Two copies over two ranks each: half of 3 P inside, an all-reduce of half of P between two copies.
        ({"method": "fsdp2", "reshard_after_forward": True, "replicas": 2}, 1, 3 / 2 + 1 / 2),
    ],
)
def test_formula_is_the_papers_but_for_all_reduced_gradients(sharding: dict, accumulation: int, parts: float) -> None:
    assert sum(messages_of(sharding, 4, accumulation)) == pytest.approx(parts)


@pytest.fixture
def run_by_hand(make_run):
    def make(name: str, config: str, sharding: dict, lines: list[str]) -> None:
        """4 ranks, 2^20 parameters in bf16: P is 2 MiB."""
        facts = {"exercise": "by-hand", "experiment": "by-hand", "world_size": 4, "gpus_per_node": 4, "config": config}
        facts |= {"model": {"name": "simple-gpt", "parameters": 2**20}, "precision": "bf16", "sharding": sharding}
        facts |= {"settings": {"grad_acc": 1, "bf16": True}}
        make_run(name, facts, **{"collectives.csv": OLDER_HEADER + "".join(f"3,{line}\n" for line in lines)})

    return make


def test_hybrid_shard_sends_only_its_copies_sums_between_nodes(run_by_hand, filled_by_column) -> None:
    whole = {"method": "fsdp2", "reshard_after_forward": True, "replicas": 1}
    message = 2 * 2**20
    lines = [f"all-gather,0 1 2 3,bfloat16,{message},2", f"reduce-scatter,0 1 2 3,bfloat16,{message},1"]
    run_by_hand("r1", "full_shard", whole, lines)
    lines = [f"all-gather,0 1,bfloat16,{message},2", f"reduce-scatter,0 1,bfloat16,{message},1"]
    lines += [f"all-reduce,0 2,bfloat16,{message // 2},1", "broadcast,0 1 2 3,float32,0,5"]
    run_by_hand("r2", "hybrid_shard", whole | {"replicas": 2}, lines)
    rows = filled_by_column(REPO / "further/by-hand", "21")
    names = ["All-reduce", "All-gather", "Reduce-scatter", "Other collectives"]
    sizes = ["Sent per rank (MiB)", "Predicted (MiB)", "Between two nodes (MiB)"]
    assert [rows["FULL_SHARD"][name] for name in names] == ["0", "2", "1", "0"]
    assert [rows["FULL_SHARD"][name] for name in sizes] == ["4.50", "4.50", "4.50"]
    assert [rows["HYBRID_SHARD"][name] for name in names] == ["1", "2", "1", "5"]
    # Ranks 0 and 1 of a node each send 1 MiB: an all-reduce of half of P with the same rank of the other node.
    assert [rows["HYBRID_SHARD"][name] for name in sizes] == ["4.00", "4.00", "2.00"]


def test_run_without_a_count_says_so(make_run, filled_by_column) -> None:
    facts = {"exercise": "by-hand", "experiment": "by-hand", "world_size": 4, "config": "full_shard"}
    make_run("r1", facts | {"settings": {"grad_acc": 1}})
    assert filled_by_column(REPO / "further/by-hand", "21")["FULL_SHARD"]["Sent per rank (MiB)"] == "not counted"


def written(folder: Path, text: str) -> Path:
    path = folder / "collectives.csv"
    path.write_text(text)
    return path


def test_ring_sends_each_kind_s_share_of_the_message(tmp_path: Path) -> None:
    lines = ["all-reduce,0 1 2 3,,bfloat16,1000,2", "all-gather,0 1,,bfloat16,1000,1"]
    lines += ["send,0 1,1,float32,1000,1", "receive,0 1,1,float32,1000,1"]
    found = collectives.read(written(tmp_path, HEADER + "".join(f"3,0,{line}\n" for line in lines)))
    assert [kind.sent_bytes for kind in found] == [3000, 500, 1000, 0]


def test_what_a_pipeline_sends_is_that_of_its_largest_rank_and_leaves_a_node_once(make_run) -> None:
    """Ranks 0 to 3, two to a node: those in the middle send activations on and gradients back."""
    lines = [f"{rank},send,0 1 2 3,{rank + 1},float32,{2**20},2" for rank in range(3)]
    lines += [f"{rank},send,0 1 2 3,{rank - 1},float32,{2**20},2" for rank in range(1, 4)]
    lines += [f"{rank},receive,0 1 2 3,{rank - 1},float32,{2**20},2" for rank in range(1, 4)]
    facts = {"exercise": "dimensions", "experiment": "dimensions", "world_size": 4, "gpus_per_node": 4}
    run = read_run(make_run("r1", facts, **{"collectives.csv": HEADER + "".join(f"3,{line}\n" for line in lines)}))
    assert (figure(run, "sent_mib"), figure(run, "sends"), figure(run, "other_collectives")) == (4, 4, 0)
    assert figure(run, "sent_between_nodes_mib") == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("step,calls\n", 1),
        (HEADER + "3,0,all-gather,0 1,,float32,8\n", 2),
        (HEADER + "3,0,all-gather,,,float32,8,1\n", 2),
        (HEADER + "3,0,send,0 1,,float32,8,1\n", 2),
    ],
)
def test_damaged_file_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(LogError) as error:
        collectives.read(written(tmp_path, text))
    assert error.value.line == line
