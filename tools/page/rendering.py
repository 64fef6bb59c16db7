"""The pages' templates: every text that they are given is escaped and made harmless."""

from datetime import UTC, datetime
from pathlib import Path

import jinja2

from workshop.run_folder.plural import counted
from workshop.run_folder.printable import printable

STATIC = Path(__file__).parent / "static"


def environment() -> jinja2.Environment:
    """With `made`, the time now, and `counted`."""
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals["made"] = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    pages.globals["counted"] = counted
    return pages
