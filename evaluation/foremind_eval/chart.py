"""Draw a comparison as an SVG bar chart of shares, with confidence intervals where known."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from foremind_eval.recall import RecallReport

_ROW, _BAR, _LABEL, _SCALE, _MARGIN = 30, 16, 300, 480, 20


@dataclass(frozen=True, slots=True)
class Bar:
    """A share from 0 to 1, the label after its bar, and its confidence interval if known."""

    name: str
    share: float
    label: str
    interval: tuple[float, float] | None = None


def recall_bar(report: RecallReport) -> Bar:
    """Return the bar of recall@10."""
    recall = report.recall_at_10
    return Bar(report.name, recall, f"{recall:.3f}", report.recall_at_10_interval)


def draw(bars: Sequence[Bar], title: str) -> str:
    """Return an SVG image of the bars, top to bottom."""
    height = 2 * _MARGIN + 30 + _ROW * len(bars)
    width = _LABEL + _SCALE + 90
    rows = "".join(_draw_bar(bar, 50 + _ROW * index) for index, bar in enumerate(bars))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="13">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{_MARGIN}" y="28" font-size="15" font-weight="600">{escape(title)}</text>'
        f"{rows}</svg>\n"
    )


def _draw_bar(bar: Bar, top: int) -> str:
    middle = top + _BAR / 2
    end = _LABEL + _SCALE * bar.share
    whisker = ""
    if bar.interval is not None:
        low, end = (_LABEL + _SCALE * bound for bound in bar.interval)
        whisker = (
            f'<path d="M{low:.1f} {middle}H{end:.1f}M{low:.1f} {top + 3}v10'
            f'M{end:.1f} {top + 3}v10" stroke="#12303f" fill="none"/>'
        )
    return (
        f'<text x="{_LABEL - 10}" y="{middle + 5}" text-anchor="end">{escape(bar.name)}</text>'
        f'<rect x="{_LABEL}" y="{top}" width="{_SCALE * bar.share:.1f}" height="{_BAR}" '
        f'fill="#3b7ea1"/>{whisker}'
        f'<text x="{end + 8:.1f}" y="{middle + 5}">{escape(bar.label)}</text>'
    )
