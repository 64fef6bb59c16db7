"""steps.json holds what the simulation says today."""

import json

from tools.plan import simulate


def test_kept_steps_are_what_the_simulation_says() -> None:
    names = sorted(simulate._kept())
    chosen = [
        next(name for name in names if all(word in name for word in words))
        for words in (('"gpt2"', '"bf16"'), ('"flex"', '"bloom-560m"', '"compile": true'))
    ]
    for name, now in zip(chosen, simulate.simulate([json.loads(name) for name in chosen]), strict=True):
        kept = simulate._kept()[name]
        parts = [{key: part[key] for key in kept["parts"][0]} for part in now["parts"]]
        assert now | {"parts": parts} == kept, f"{name}: expected `python -m tools plan --fit` after a change"
