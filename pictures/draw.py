"""The pictures of the READMEs: python -m pictures.draw writes them beside this file."""

from pathlib import Path

from pictures import sharding, training

HERE = Path(__file__).parent
PICTURES = {
    draw.__name__: draw
    for draw in (
        *(sharding.zero_stages, sharding.zero_step, sharding.offload, sharding.fsdp_units, sharding.hybrid_shard),
        sharding.communication,
        *(training.labels, training.packing, training.weak_scaling, training.timer, training.attempts),
    )
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        draw().save(HERE / f"{name}.svg")
