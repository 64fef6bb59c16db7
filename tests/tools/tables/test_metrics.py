"""Figures that compare runs say in a word what they lack."""

import pytest

from tools.errors import InputError, UnavailableError
from tools.logs.runs import read_run
from tools.tables.metrics import METRICS


@pytest.mark.parametrize("name", ["real_tokens_per_gpu", "share_of_one_gpu"])
def test_figure_per_gpu_of_an_unknown_number_of_gpus_is_a_word(make_run, name) -> None:
    speeds = {"train/samples_per_second": 10.0, "train/real_tokens_per_second": 1000.0}
    sizes = dict.fromkeys(("world_size", "nodes", "gpus_per_node"), ...)
    run = read_run(make_run("20261121-094500-j1", sizes, summary=speeds))
    with pytest.raises(UnavailableError, match="no world_size"):
        METRICS[name].value(lambda _: [run], {"rung": "0_textbook", "bases": {"one_gpu": "speed-ladder"}})


def test_ratio_without_a_base_names_the_file_that_lacks_it(make_run) -> None:
    run = read_run(make_run("20261121-094500-j1", summary={"train/real_tokens_per_second": 1000.0}))
    with pytest.raises(InputError, match=r"tables\.toml: \[bases\]: no 'textbook'; found nothing"):
        METRICS["gain_over_textbook"].value(lambda _: [run], {"bases": {}})
