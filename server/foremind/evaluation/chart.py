"""Draws a comparison as a picture: one bar a variant, recall@10 with its interval."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from foremind.evaluation.recall import RecallReport

_ROW, _BAR, _LABEL, _SCALE, _MARGIN = 30, 16, 300, 480, 20


def draw(reports: Sequence[RecallReport], title: str) -> str:
    """Return an SVG picture of the reports, top to bottom."""
    height = 2 * _MARGIN + 30 + _ROW * len(reports)
    width = _LABEL + _SCALE + 90
    rows = "".join(_bar(each, 50 + _ROW * index) for index, each in enumerate(reports))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="13">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{_MARGIN}" y="28" font-size="15" font-weight="600">{escape(title)}</text>'
        f"{rows}</svg>\n"
    )


def _bar(report: RecallReport, top: int) -> str:
    low, high = (_LABEL + _SCALE * each for each in report.recall_at_10_interval)
    middle = top + _BAR / 2
    return (
        f'<text x="{_LABEL - 10}" y="{middle + 5}" text-anchor="end">{escape(report.name)}</text>'
        f'<rect x="{_LABEL}" y="{top}" width="{_SCALE * report.recall_at_10:.1f}" height="{_BAR}" '
        f'fill="#3b7ea1"/>'
        f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {top + 3}v10M{high:.1f} {top + 3}v10" '
        f'stroke="#12303f" fill="none"/>'
        f'<text x="{_LABEL + _SCALE * report.recall_at_10_interval[1] + 8:.1f}" '
        f'y="{middle + 5}">{report.recall_at_10:.3f}</text>'
    )
