"""A peer's trainer measures the model that it trains, once, and registers the attention kernel that it uses."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import peers
from workshop.kernels.fast_models.packing import Row


def of(library: str) -> Mock:
    """A model of this library."""
    return Mock(library=library, to=lambda dtype: of(library))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that callbacks were made for; TRL and Unsloth are replaced."""
    models: list[str] = []
    trl, unsloth = ModuleType("trl"), ModuleType("unsloth")
    trl.SFTConfig = trl.SFTTrainer = lambda **given: SimpleNamespace(**given)
    unsloth.FastLanguageModel = SimpleNamespace(
        from_pretrained=lambda *_, **__: (of("unsloth's"), None),
        get_peft_model=lambda *_, **__: of("adapted"),
    )
    monkeypatch.setitem(sys.modules, "trl", trl)
    monkeypatch.setitem(sys.modules, "unsloth", unsloth)
    monkeypatch.setattr(peers, "callbacks_for", lambda settings, data, model: models.append(model.library) or [])
    monkeypatch.setattr(peers, "common_arguments", lambda settings: {})
    return models


def trainer_of(rung: str) -> Any:
    data = SimpleNamespace(train=[Row(input_ids=[5, 6], labels=[-100, 6])])
    settings = SimpleNamespace(rung=rung, max_length=8, batch_size=2)
    return peers.PEERS[rung](settings, data, of("ours"), Mock())


@pytest.mark.parametrize(
    ("rung", "model"), [("peer_trl_packed", "ours"), ("peer_unsloth", "unsloth's"), ("peer_unsloth_lora", "adapted")]
)
def test_callbacks_are_made_once_for_the_model_that_is_trained(rung: str, model: str, measured: list[str]) -> None:
    assert trainer_of(rung).model.library == model
    assert measured == [model]


@pytest.mark.parametrize(("rung", "times"), [("peer_trl_varlen", 1), ("peer_trl_exact", 0), ("peer_trl_packed", 0)])
def test_torch_varlen_is_registered_only_where_it_is_used(
    rung: str, times: int, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    register = Mock()
    monkeypatch.setattr(peers.varlen_attention, "register", register)
    trainer_of(rung)
    assert register.call_count == times
