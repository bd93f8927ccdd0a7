"""Bars with a dot for each round, as SVG. The colours follow the reader's choice of light or dark."""

from html import escape

WIDTH, LABEL, BAR, GAP, HEAD = 760, 230, 16, 14, 44
# Of the values: what is right of the bars.
MARGIN = 90

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 14px }
.quiet { fill: #57606a }
.bar { fill: #8c959f }
.own { fill: #1f6feb }
.dot { fill: #24292f; fill-opacity: .55 }
.axis { stroke: #8c959f; stroke-opacity: .5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .quiet { fill: #9198a1 }
  .bar { fill: #656c76 }
  .own { fill: #4493f8 }
  .dot { fill: #e6edf3 }
}
"""


class Bar:
    """A target's median, and the values of its rounds."""

    def __init__(self, label, value, points, text):
        self.label = label
        self.value = value
        self.points = points
        self.text = text


def bars(title, groups):
    """A plot of groups of bars: [(name, [Bar, ..]), ..]."""
    most = max((top(bar) for _, group in groups for bar in group), default=0) or 1
    scale = (WIDTH - LABEL - MARGIN) / most
    parts, y = [text(0, 16, title, "title")], HEAD
    for name, group in groups:
        parts.append(text(0, y, name, "quiet"))
        y += 8
        for bar in group:
            parts += drawn(bar, y, scale)
            y += BAR + 4
        y += GAP + 8
    parts.append(f'<line class="axis" x1="{LABEL}" x2="{LABEL}" y1="{HEAD - 8}" y2="{y - GAP}"/>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">'
    body = "\n".join(parts)
    return f"{head}\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n"


def top(bar):
    return max([bar.value, *bar.points])


def drawn(bar, y, scale):
    middle = y + BAR / 2
    own = "own" if bar.label.startswith("raincheck") else "bar"
    yield text(LABEL - 8, middle + 4, bar.label, end=True)
    yield f'<rect class="{own}" x="{LABEL}" y="{y}" width="{bar.value * scale:.1f}" height="{BAR}" rx="2"/>'
    for point in bar.points:
        yield f'<circle class="dot" cx="{LABEL + point * scale:.1f}" cy="{middle}" r="2"/>'
    yield text(LABEL + top(bar) * scale + 8, middle + 4, bar.text)


def text(x, y, words, kind="", end=False):
    kind = f' class="{kind}"' if kind else ""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{kind}{anchor}>{escape(words)}</text>'
