"""The pictures of the READMEs: python -m pictures.draw writes them beside this file.

A drawing function's docstring is the picture in words, for who cannot see it: title, empty line, description.
"""

from pathlib import Path

from pictures import dimensions, sharding, training
from pictures.svg import Picture

HERE = Path(__file__).parent
HEIGHTS = {  # in pixels
    **{sharding.zero_stages: 330, sharding.zero_step: 347, sharding.fsdp_units: 347, sharding.offload: 330},
    **{sharding.hybrid_shard: 300, sharding.communication: 220, training.labels: 150, training.packing: 290},
    **{training.weak_scaling: 280, training.attempts: 210, training.timer: 270, training.adapters: 206},
    **{dimensions.tensor_parallel: 490, dimensions.context_parallel: 310, dimensions.pipeline_parallel: 384},
}


def pictures() -> dict[str, str]:
    """Each picture's SVG by its name."""
    drawn = {}
    for draw, height in HEIGHTS.items():
        title, description = draw.__doc__.split("\n\n")
        picture = Picture(height, title, " ".join(description.split()))
        draw(picture)
        drawn[draw.__name__] = picture.text()
    return drawn


if __name__ == "__main__":
    for name, text in pictures().items():
        (HERE / f"{name}.svg").write_text(text, encoding="utf-8")
