"""Kinds of GPUs: in any case, by their beginning, from a file of one's own, each with its source."""

from pathlib import Path

import pytest

from tools.errors import InputError
from tools.plan.gpus import FILE, GPUS, named


def test_kind_is_found_in_any_case_and_by_its_beginning() -> None:
    assert named("h100") == named("H100-80GB") == GPUS["h100-80gb"]
    assert {"b200", "gh200", "l40s", "a10", "rtx-4090", "rtx-6000", "mi300x"} < GPUS.keys()
    assert all(one.source and one.flops_per_s("fp16") > one.flops_per_s("fp32") for one in GPUS.values())
    assert {name for name, one in GPUS.items() if one.measured} == {"h200", "h100-80gb"}
    with pytest.raises(InputError, match=r"--gpu b300: unknown; the nearest are b200, mi300x, h200; or give a FILE"):
        named("b300")


def test_kind_of_ones_own_comes_from_a_file(tmp_path: Path) -> None:
    text = FILE.read_text()
    file = tmp_path / "mine.toml"
    file.write_text(text.partition("[b200]")[2].partition("[gh200]")[0].replace("183359", "96000"))
    assert named(str(file)).memory_mib == 96_000 and not named(str(file)).measured
    file.write_text(file.read_text().replace("memory_mib", "memory"))
    with pytest.raises(InputError, match="nothing reads memory; expected driver_name, memory_mib"):
        named(str(file))
    file.write_text("memory_mib = 1")
    with pytest.raises(InputError, match=r"mine.toml: expected driver_name, memory_gb_per_s, .*, as in gpus.toml"):
        named(str(file))
