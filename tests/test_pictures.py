"""A picture that a browser shows otherwise than it was drawn would teach something else."""

import json
import re
import subprocess
from html import unescape
from pathlib import Path

import pytest

from tests.launching import browser

PICTURES = sorted((Path(__file__).parents[1] / "documents/pictures").glob("*.svg"))
# In the browser: texts that leave their picture, or lie on one another by more than a pixel.
LOOK = """
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
const found = document.createElement("pre");
const card = getComputedStyle(document.querySelector("svg > rect")).fill;
found.textContent = JSON.stringify([card, faults]);
document.body.replaceChildren(found);
"""


@pytest.mark.parametrize(("scheme", "card"), [(1, "rgb(255, 255, 255)"), (0, "rgb(13, 17, 23)")])
def test_browser_shows_every_word_inside_its_picture(tmp_path: Path, scheme: int, card: str) -> None:
    """On a light page and on a dark one, where a white card would dazzle."""
    drawn = "".join(f"<div>{path.read_text().replace('<svg', f'<svg id={path.stem!r}', 1)}</div>" for path in PICTURES)
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset='utf-8'><body>{drawn}<script>{LOOK}</script></body>")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    options.append(f"--blink-settings=preferredColorScheme={scheme}")
    answer = subprocess.run([browser(), *options, page.as_uri()], capture_output=True, text=True, timeout=120)
    (found,) = re.findall(r"<pre>(.*)</pre>", answer.stdout, re.DOTALL) or [answer.stderr[-2000:]]
    assert json.loads(unescape(found)) == [card, []]
