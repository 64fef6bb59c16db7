"""The bytes that the planner takes a step's time from are those that GPUs were counted to send."""

import pytest

from tests.launching import REPO
from tools.logs.figures import measure
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.plan.timing import traffic
from tools.plan.workload import Strategy, Workload

HOSTS = (REPO / f"logs/reference/{host}" for host in ("h200x2-2026-11-27", "h200x4-2026-11-22b"))
FOUND = [run for run in find_runs(*HOSTS) if "collectives.csv" in run.files and run.settings["optimizer"] != "muon"]
RUNS = [run for run in FOUND if "textbook" not in run.configuration]  # which reduce as in the paper, not as ours


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.configuration}, {run.world_size} GPUs")
def test_gpus_sent_what_the_planner_counts_with(run: Run) -> None:
    """By-hand's runs: weights in bf16, all of them gathered as a block's."""
    sharding, parameters = run.record.sharding, run.record.model.parameters
    config = {"dp_replicate_size": sharding.replicas or 1, "reshard_after_forward": sharding.reshard_after_forward}
    strategy = Strategy(run.method, run.world_size, run.settings["grad_acc"], True, config, weight_bytes=2)
    sizes = {"parameters": parameters, "block_parameters": parameters}
    step = sizes | {"trained": sizes, "blocks": 1}
    (sent, _), (_, between) = (traffic(Workload({}, strategy, nodes), step) for nodes in (1, 2))
    counted = [measure(run, name) for name in ("sent_mib", "sent_between_nodes_mib")]
    assert [sent / 2**20, between / 2**20] == pytest.approx(counted, rel=0.002)
