"""Errors that a script of further/dimensions/ could have, planted in it: the proof has to see each."""

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from custom_model.model import SelfAttention

Replacement = tuple[object, str, Any]  # whose attribute, its name, its value


def queries_of_another_head(_: ModuleType) -> Replacement:
    attend = SelfAttention.attend
    return SelfAttention, "attend", staticmethod(lambda queries, *given: attend(queries.roll(1, 1), *given))


def head_left_untied(tp: ModuleType) -> Replacement:
    parallelize = tp.parallelize_module

    def and_no_more(model: torch.nn.Module, *given: Any, **named: Any) -> None:
        parallelize(model, *given, **named)
        model.tie_weights = lambda: None

    return tp, "parallelize_module", and_no_more


def world_size_missing(_: ModuleType) -> Replacement:
    backward = torch.Tensor.backward
    return torch.Tensor, "backward", lambda loss: backward(loss / dist.get_world_size())


def target_lost_at_each_border(cp: ModuleType) -> Replacement:
    next_tokens = cp.next_tokens

    def of_parts(labels: torch.Tensor) -> torch.Tensor:
        parts = labels.chunk(2 * dist.get_world_size(), dim=1)
        return torch.cat([next_tokens(part) for part in parts], dim=1)

    return cp, "next_tokens", of_parts


def positions_from_0_on_each_rank(cp: ModuleType) -> Replacement:
    shard_of = cp.shard_of

    def shard(*given: Any) -> dict[str, torch.Tensor]:
        found = shard_of(*given)
        return found | {"position_ids": found["position_ids"].sort().values - found["position_ids"].min()}

    return cp, "shard_of", shard


def parts_in_another_order_than_the_ranks(ulysses: ModuleType) -> Replacement:
    shard_of = ulysses.shard_of

    def shard(batch: Any, group: Any, device: Any) -> dict[str, torch.Tensor]:
        return shard_of(batch, SimpleNamespace(size=group.size, rank=lambda: group.size() - 1 - group.rank()), device)

    return ulysses, "shard_of", shard


def tied_gradients_not_added(_: ModuleType) -> Replacement:
    alone = dist.new_subgroups_by_enumeration
    return dist, "new_subgroups_by_enumeration", lambda _: alone([[rank] for rank in range(dist.get_world_size())])


def gradients_divided_by_micro_batches(pp: ModuleType) -> Replacement:
    schedule = pp.SCHEDULES["1f1b"]
    return pp, "SCHEDULES", {"1f1b": lambda *given, **_: schedule(*given, scale_grads=True)}


def balance_of_own_tokens(ep: ModuleType) -> Replacement:
    balance = ep.balance

    def own(*given: Any) -> Any:
        with patch.object(dist, "all_reduce", lambda *_: None):
            loss, rows = balance(*given)
        return loss / dist.get_world_size(), rows

    return ep, "balance", own


def gradients_stay_on_their_rank(ep: ModuleType) -> Replacement:
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.new_zeros(sum(ctx.sent), gradient.shape[1]), None, None, None

    return ep.AllToAll, "backward", staticmethod(backward)


def experts_averaged_over_their_copies_only(ep: ModuleType) -> Replacement:
    through = ep.through_experts

    def undivided(*given: Any) -> torch.Tensor:
        with patch.object(torch.Tensor, "register_hook", lambda *_: None):
            return through(*given)

    return ep, "through_experts", undivided


TP_FAULTS = {"wrong heads": queries_of_another_head, "untied head": head_left_untied}
CP_FAULTS = {
    "world size missing": world_size_missing,
    "target lost at each border": target_lost_at_each_border,
    "positions from 0 on each rank": positions_from_0_on_each_rank,
}
ULYSSES_FAULTS = {
    "positions from 0 on each rank, Ulysses": positions_from_0_on_each_rank,
    "parts in another order than the ranks": parts_in_another_order_than_the_ranks,
}
PP_FAULTS = {
    "tied gradients not added": tied_gradients_not_added,
    "gradients divided by micro-batches": gradients_divided_by_micro_batches,
}

EP_FAULTS = {
    "balance of each rank's own tokens": balance_of_own_tokens,
    "gradients do not travel back": gradients_stay_on_their_rank,
    "experts averaged over their copies only": experts_averaged_over_their_copies_only,
}


def planted(name: str, script: ModuleType) -> AbstractContextManager[object]:
    """While it lasts, the script has the error of this name; none has the name ""."""
    faults = TP_FAULTS | CP_FAULTS | ULYSSES_FAULTS | PP_FAULTS | EP_FAULTS
    return patch.object(*faults[name](script)) if name else nullcontext()
