"""A picture that a browser shows otherwise than it was drawn would teach something else."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

PICTURES = sorted((Path(__file__).parents[1] / "documents/pictures").glob("*.svg"))
# In the browser: texts that leave their picture, or lie on one another by more than a pixel.
LOOK = """() => {
const faults = [];
for (const svg of document.querySelectorAll("svg")) {
  const card = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")];
  const boxes = texts.map(text => text.getBoundingClientRect());
  boxes.forEach((a, i) => {
    const words = svg.id + ": " + texts[i].textContent;
    if (!a.width) faults.push(words + " is not shown");
    if (a.left < card.left + 4 || a.right > card.right - 4 || a.top < card.top || a.bottom > card.bottom)
      faults.push(words + " leaves the picture");
    boxes.slice(i + 1).forEach((b, j) => {
      const over = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (over > 1 && down > 3) faults.push(words + " lies on " + texts[i + 1 + j].textContent);
    });
  });
}
return [getComputedStyle(document.querySelector("svg > rect")).fill, faults];
}"""


@pytest.mark.parametrize(("scheme", "card"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(13, 17, 23)")])
def test_browser_shows_every_word_inside_its_picture(chromium: Browser, scheme: str, card: str) -> None:
    """On a light page and on a dark one, where a white card would dazzle."""
    drawn = "".join(f"<div>{path.read_text().replace('<svg', f'<svg id={path.stem!r}', 1)}</div>" for path in PICTURES)
    page = chromium.new_page(color_scheme=scheme)
    page.set_content(f"<!doctype html><meta charset='utf-8'><body>{drawn}</body>")
    assert page.evaluate(LOOK) == [card, []]
