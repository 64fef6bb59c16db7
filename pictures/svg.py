"""A picture as SVG: boxes, words and arrows on a card of its own, legible on a light and on a dark page."""

from xml.sax.saxutils import escape

WEIGHTS, GRADIENTS, OPTIMIZER, TOKENS = "#4c78a8", "#e8871e", "#4f9a47", "#8a6bbe"
GREY, LINE, INK, WHITE = "#d8dce1", "#7d8590", "#1f2328", "#ffffff"
WIDTH = 900  # in pixels, as all lengths here
_FONT = "font-family='Helvetica, Arial, DejaVu Sans, sans-serif'"


class Picture:
    def __init__(self, height: int, title: str, description: str) -> None:
        self._parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' "
            f"role='img' {_FONT} fill='{INK}'>",
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            f"<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
            f"orient='auto-start-reverse'><path d='M0 0 L8 4 L0 8 z' fill='{INK}'/></marker></defs>",
            f"<rect x='.5' y='.5' width='{WIDTH - 1}' height='{height - 1}' rx='8' fill='{WHITE}' stroke='{GREY}'/>",
        ]

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = "none", ink: str = LINE, dashed: bool = False
    ) -> None:
        """A rectangle; x and y are its upper left corner."""
        dash = " stroke-dasharray='4 3'" if dashed else ""
        self._parts.append(
            f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' fill='{fill}' stroke='{ink}'{dash}/>"
        )

    def words(
        self, x: float, y: float, text: str, size: int = 13, at: str = "start", bold: bool = False, ink: str = INK
    ) -> None:
        """One line of text; `at` is start, middle or end: the part of the text that lies at x."""
        weight = " font-weight='bold'" if bold else ""
        self._parts.append(
            f"<text x='{x:g}' y='{y:g}' font-size='{size}' text-anchor='{at}'{weight} fill='{ink}'>"
            f"{escape(text)}</text>"
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, both: bool = False) -> None:
        """A line with a tip at its end; `both`: at its start, too."""
        start = " marker-start='url(#tip)'" if both else ""
        self._parts.append(
            f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{INK}' stroke-width='1.4' "
            f"marker-end='url(#tip)'{start}/>"
        )

    def triangle(self, x: float, y: float, side: float, fill: str) -> None:
        """The half of a square below its diagonal; x and y are the square's upper left corner."""
        corners = f"{x:g},{y:g} {x:g},{y + side:g} {x + side:g},{y + side:g}"
        self._parts.append(f"<polygon points='{corners}' fill='{fill}' stroke='{LINE}'/>")

    def legend(self, x: float, y: float, entries: dict[str, str], step: float = 150) -> None:
        """Coloured boxes with words beside them, in a row."""
        for number, (text, fill) in enumerate(entries.items()):
            self.box(x + number * step, y - 10, 12, 12, fill)
            self.words(x + number * step + 18, y, text, 12)

    def text(self) -> str:
        """The SVG file."""
        return "\n".join([*self._parts, "</svg>"]) + "\n"
