"""DeepSpeed's compiled operators: those that are used, where they belong, and none compiled behind a job's back."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.launching import PATH, REPO
from workshop import operators
from workshop.errors import WorkshopError

CONFIGS = REPO / "deepspeed-single-gpu" / "ds_configs"


def config(name: str) -> dict[str, object]:
    return json.loads((CONFIGS / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "builders"),
    [("zero0", ["FusedAdamBuilder"]), ("zero3", ["FusedAdamBuilder"]), ("zero2_offload", ["CPUAdamBuilder"])],
)
def test_only_the_optimizer_that_a_configuration_uses_is_compiled(name: str, builders: list[str]) -> None:
    assert operators.needed(config(name)) == builders


def test_pytorchs_own_optimizer_needs_no_compilation() -> None:
    torch_adam = {"type": "AdamW", "params": {"torch_adam": True}}
    assert operators.needed(config("zero2_offload") | {"optimizer": torch_adam}) == []
    assert operators.needed({"zero_optimization": {"stage": 1}}) == []


@pytest.mark.usefixtures("optimizers_compiled")
def test_deepspeed_takes_the_prepared_operators_and_compiles_nothing_itself(tmp_path: Path) -> None:
    """Without a compiler, without ninja, and with an empty folder where it would compile."""
    code = f"""import json, os, sys, torch
from pathlib import Path
from workshop.operators import prepare_operators
prepare_operators(json.loads(Path(sys.argv[1]).read_text()))
prepare_operators({{"optimizer": {{"type": "AdamW"}}}})
os.environ |= {{"PATH": "/nowhere", "CXX": "/nowhere/c++", "TORCH_EXTENSIONS_DIR": {str(tmp_path)!r}}}
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
for optimizer in (DeepSpeedCPUAdam, FusedAdam):
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    optimizer([weight], lr=0.5).step()
    assert torch.allclose(weight, torch.full((4,), 0.5), atol=1e-3), weight
import deepspeed
deepspeed.init_distributed(dist_backend="gloo")
"""
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    answer = subprocess.run(
        [sys.executable, "-c", code, str(CONFIGS / "zero2_offload.json")],
        cwd=REPO,
        env=os.environ | one_rank,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_each_version_and_kind_of_processor_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {operators.build_name()}
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    names.add(operators.build_name())
    monkeypatch.setattr(operators, "gpu_architecture", lambda: "9.0")
    names.add(operators.build_name())
    monkeypatch.setattr(operators, "gpu_architecture", lambda: "8.0")
    names.add(operators.build_name())
    monkeypatch.setattr(operators, "processor_features", lambda: "another kind")
    names.add(operators.build_name())
    assert len(names) == 5
    assert any("torch9.9.9" in name and "sm90" in name for name in names)


def test_an_environment_keeps_its_operators_in_its_own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert operators.writable_folder() == tmp_path / "venv" / "torch_extensions" / operators.build_name()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "elsewhere"))
    assert operators.writable_folder() == tmp_path / "elsewhere" / operators.build_name()


def test_read_only_environment_is_used_where_it_has_the_operator_else_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A shared WORKSHOP_VENV, a container. A file in the way stands for the missing permission: root always has it."""
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "torch_extensions").touch()
    cache = tmp_path / "home/.cache/torch_extensions" / operators.build_name()
    assert operators.writable_folder() == cache
    (builder,) = operators.uninstalled(["CPUAdamBuilder"])
    (tmp_path / "venv" / "torch_extensions").unlink()
    shared = tmp_path / "venv/torch_extensions" / operators.build_name()
    shared.mkdir(parents=True)
    (cache / "cpu_adam.so").touch()
    assert operators.find(builder) == cache / "cpu_adam.so"
    (shared / "cpu_adam.so").touch()
    assert operators.find(builder) == shared / "cpu_adam.so"


def test_systems_python_is_no_place_for_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("HOME", "/somebody")
    assert operators.folders() == [Path("/somebody/.cache/torch_extensions") / operators.build_name()]


def test_missing_operators_are_named_with_the_command_that_compiles_them(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "workshop.operators", "--check"],
        cwd=REPO,
        env=os.environ | {"TORCH_EXTENSIONS_DIR": str(tmp_path), "PATH": PATH},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 1
    assert "fused_adam, cpu_adam: not compiled yet; run `python -m workshop.operators` once" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_machine_without_a_compiler_says_what_to_install_or_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(WorkshopError, match=r'cpu_adam.*no C\+\+ compiler.*install one.*"torch_adam": true'):
        operators.prepare_operators(config("zero2_offload"))


def test_damaged_operator_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "cpu_adam.so").write_text("half a file")
    with pytest.raises(WorkshopError, match=r"cpu_adam\.so: cannot be loaded .* delete it"):
        operators.load_library(tmp_path / "cpu_adam.so")


def test_preset_gpu_architecture_that_deepspeed_cannot_read_is_replaced_aloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(operators, "gpu_architecture", lambda: "9.0")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    assert operators.variables()["TORCH_CUDA_ARCH_LIST"] == "9.0"
    assert (
        "TORCH_CUDA_ARCH_LIST=9.0a does not count here: compiling for this node's GPU, 9.0" in capsys.readouterr().out
    )
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    assert operators.variables()["TORCH_CUDA_ARCH_LIST"] == "9.0"
    assert capsys.readouterr().out == ""
