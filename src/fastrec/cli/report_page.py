"""The page of ``fastrec report``: sections of HTML, in which all text is escaped."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import BytesArray
from fastrec.cli.preview import preview
from fastrec.cli.report_order import ColumnOrder, LabelOrder
from fastrec.cli.report_sample import Sample, flat_values
from fastrec.cli.stats import ColumnSummary
from fastrec.cli.svg import heat_map, histogram
from fastrec.cli.terminal import counted, size
from fastrec.display import Html, as_text, escaped, picture_of, table, value_html

__all__ = [
    "Picture",
    "columns",
    "histogram_of",
    "images",
    "order",
    "overview",
    "page",
    "rows",
    "shards",
]

_MAX_CARDS = 100
_MAX_BARS = 24  # files that have a bar with a name
_N_BINS = 32
_MAX_BINS = 64  # bars of a chart of more files
_MAX_CORRELATIONS = 8
_COMMON_TEXTS, _COMMON_NUMBERS = 0.2, 0.5  # that are shown instead of a histogram
_SORTED = 0.1  # correlation with the place in the files

Picture = tuple[str, str]  # data URI and caption


def page(title: str, sections: Iterable[str], footer: str) -> str:
    """Return the whole page."""
    template = Template(
        resources.files(__package__).joinpath("report.html").read_text("utf-8")
    )
    return template.substitute(
        title=escaped(title), body="\n".join(sections), footer=escaped(footer)
    )


def overview(title: str, facts: Sequence[tuple[str, str]]) -> str:
    """Return the heading, and tiles of facts."""
    tiles = "".join(
        f'<div class="card"><b>{escaped(value)}</b>'
        f'<span class="soft">{escaped(name)}</span></div>'
        for name, value in facts
    )
    return f'<h1>{escaped(title)}</h1><div class="grid tiles">{tiles}</div>'


def columns(n_records: int, stats: Sequence[ColumnSummary], sample: Sample) -> str:
    """Return a card for each column, and the schema to copy."""
    lengths = {each.name: each for each in stats}
    shown = [each for each in stats if each.name in sample.schema]
    cards = "".join(
        _card(each, lengths.get(f"len({each.name})", each), n_records, sample)
        for each in shown[:_MAX_CARDS]
    )
    note = (
        '<p class="soft">Of all records. Medians and numbers of distinct values are '
        "estimates, and histograms those of a sample.</p>"
    )
    parts = [_heading("Columns"), note, f'<div class="grid">{cards}</div>']
    if len(shown) > _MAX_CARDS:
        n_more = counted(len(shown) - _MAX_CARDS, "more column")
        parts.append(f'<p class="soft">... and {n_more}</p>')
    parts.append(
        "<details><summary>The schema, to pass as features=</summary>"
        '<div class="card scroll"><pre><code>'
        f"{escaped_lines(repr(sample.schema))}</code></pre></div></details>"
    )
    return "".join(parts)


def escaped_lines(text: str) -> str:
    """Return lines of text as HTML."""
    return "\n".join(map(escaped, text.splitlines()))


def _card(
    stats: ColumnSummary, per_record: ColumnSummary, n_records: int, sample: Sample
) -> str:
    unit = "" if stats.type.startswith(("BIGINT", "FLOAT")) else " bytes"
    facts = [
        (name + unit, _number(figure))
        for name, figure in (
            *(("min", stats.min), ("median", stats.q50)),
            *(("mean", stats.avg), ("max", stats.max)),
        )
        if figure is not None
    ]
    for name, n in (
        ("records without values", n_records - per_record.count),
        ("NaN, infinite", stats.n_not_finite),
    ):
        facts += [(name, f"{n:,}")] * (n > 0)
    if stats.approx_unique:
        facts.append(("distinct values", f"about {stats.approx_unique:,}"))
    listed = "".join(
        f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in facts
    )
    spec = sample.schema[stats.name]._text("fr.")
    note = sample.schema._notes.get(stats.name, "")
    return (
        f'<div class="card"><h3>{escaped(as_text(stats.name))}</h3>'
        f'<p class="spec soft">{escaped(spec)}</p>{_chart(stats, sample)}'
        f'<dl>{listed}</dl><p class="soft">{escaped(note)}</p></div>'
    )


def _chart(stats: ColumnSummary, sample: Sample) -> str:
    """Return the common values if they are many of all values, else a histogram."""
    n_common = sum(n for _, n in stats.common)
    is_number = stats.type.startswith(("BIGINT", "FLOAT"))
    part = _COMMON_NUMBERS if is_number else _COMMON_TEXTS
    if stats.common and n_common >= part * stats.count:
        return _shares(stats.common, stats.count)
    values, _ = flat_values(sample.batch[stats.name])
    if isinstance(values, BytesArray):
        values = np.diff(values.offsets)
    values = values[np.isfinite(values)]
    if stats.min is None or not len(values):
        return '<p class="soft">no values</p>'
    if stats.min == stats.max:
        return f"<p>always {escaped(_number(stats.min))}</p>"
    return histogram_of(values, "values" if is_number else "bytes")


def histogram_of(values: npt.NDArray[Any], title: str) -> str:
    """Return a histogram of numbers, with the range below it."""
    counts, edges = np.histogram(values.astype(np.float64), bins=_N_BINS)
    labels = [
        f"{_number(low)} to {_number(high)}" for low, high in itertools.pairwise(edges)
    ]
    low, high = _number(edges[0]), _number(edges[-1])
    return (
        histogram(counts.tolist(), labels, f"histogram of {title}")
        + f'<div class="axis"><span>{escaped(low)}</span>'
        f"<span>{escaped(high)}</span></div>"
    )


def _shares(common: Sequence[tuple[Any, int]], n_values: int) -> str:
    top = common[0][1]
    lines = [
        _bar(value_html(value), n / top, _percent(n / n_values)) for value, n in common
    ]
    n_others = n_values - sum(n for _, n in common)
    if n_others > 0:
        lines.append(_bar(Html("<em>others</em>"), 0, _percent(n_others / n_values)))
    return "".join(lines)


def _bar(name: Html, share: float, text: str) -> str:
    bar = f'<i style="width:{100 * share:.1f}%"></i>' if share else ""
    return (
        f'<div class="share"><span>{name}</span><span>{bar}</span>'
        f"<span>{escaped(text)}</span></div>"
    )


def shards(
    names: Sequence[str],
    n_records: Sequence[int],
    sizes: npt.NDArray[np.int64],
    mean_size: float,
) -> str:
    """Return the sizes of records, and how evenly they are divided among the files."""
    parts = [_heading("Record sizes and files"), '<div class="grid">']
    facts = f'<p class="soft">mean {escaped(size(mean_size))}</p>'
    is_varied = len(sizes) and sizes.min() < sizes.max()
    chart = histogram_of(sizes, "bytes of a record") if is_varied else ""
    parts.append(f'<div class="card"><h3>bytes of a record</h3>{chart}{facts}</div>')
    parts.append(
        f'<div class="card"><h3>records in each file</h3>{_balance(names, n_records)}</div>'
    )
    return "".join([*parts, "</div>"])


def _balance(names: Sequence[str], n_records: Sequence[int]) -> str:
    low, high = min(n_records), max(n_records)
    balance = f"{low:,} to {high:,}"
    if low and high > 1.01 * low:
        balance += f", the largest {high / low:.3g} times the smallest"
    note = f'<p class="soft">{escaped(balance)}</p>'
    if len(names) <= _MAX_BARS:
        bars = [
            _bar(escaped(name), n / max(high, 1), f"{n:,}")
            for name, n in zip(names, n_records, strict=True)
        ]
        return "".join(bars) + note
    parts = np.array_split(np.array(n_records), min(_MAX_BINS, len(names)))
    ends = np.cumsum([len(part) for part in parts]).tolist()
    labels = [
        f"files {end - len(part)} to {end - 1}, mean"
        for part, end in zip(parts, ends, strict=True)
    ]
    means = [int(part.mean()) for part in parts]
    return histogram(means, labels, "records in each file") + note


def order(
    label: object,
    n_first: int,
    orders: Sequence[LabelOrder],
    correlated: Sequence[ColumnOrder],
    sample: Sample,
) -> str:
    """Return how well the records are mixed."""
    parts = [_heading("Order of the records")]
    if not sample.is_spread:
        parts.append(
            '<p class="soft">Of the records at the beginning of compressed files.</p>'
        )
    usual = 1 / math.sqrt(max(sample.n_records - 1, 1))
    is_sorted = bool(correlated) and correlated[0].largest > max(_SORTED, 5 * usual)
    if orders:
        at_random = orders[0].same_at_random
        is_sorted |= orders[0].same_next > at_random + _SORTED + usual
        is_sorted |= orders[0].metrics.worst_z > 2 * orders[0].metrics.usual_z
    if is_sorted:
        parts.append(
            '<p class="warn">The records are not in random order: read them with '
            "shuffle=True. A shuffle buffer can deliver similar records together.</p>"
        )
    parts.append('<div class="grid">')
    parts += [
        f'<div class="card map"><h3>{escaped(each.name)}</h3>'
        f"{heat_map(each.shares, f'labels over an epoch in {each.name}')}"
        '<div class="axis"><span>first draw</span><span>last draw</span></div></div>'
        for each in orders
    ]
    if correlated:
        lines = "".join(
            _bar(
                escaped(as_text(each.name)),
                each.largest,
                f"{each.place:+.2f}, {each.following:+.2f}",
            )
            for each in correlated[:_MAX_CORRELATIONS]
        )
        parts.append(
            '<div class="card"><h3>correlation with place, and with the next record</h3>'
            f'{lines}<p class="soft">Spearman; a random order deviates from 0 by about '
            f"{usual:.3f}.</p></div>"
        )
    parts.append("</div>")
    if orders:
        parts.append(_label_table(label, n_first, orders))
    return "".join(parts)


def _label_table(label: object, n_first: int, orders: Sequence[LabelOrder]) -> str:
    lines = "".join(
        f"<tr><td>{escaped(each.name)}</td><td>{_percent(each.same_next)}</td>"
        f"<td>{each.metrics.n_first:,}</td><td>{_score(each.metrics.worst_z)}</td></tr>"
        for each in orders
    )
    metrics = orders[0].metrics
    usual_z = f"below {_score(metrics.usual_z)}" if metrics.n_counts else "-"
    return (
        '<p class="soft" style="margin-top:12px">Each map has a line for each common '
        f"value of <code>{escaped(as_text(label))}</code>; an even colour is a good "
        'order.</p><div class="scroll"><table class="numbers"><thead><tr><th>order</th>'
        "<th>the next record has the same label</th>"
        f"<th>of {metrics.n_labels:,} labels, in the first {n_first:,} draws</th>"
        "<th>worst |z| of a label</th></tr></thead><tbody>"
        f"{lines}<tr><td>at random</td><td>{_percent(orders[0].same_at_random)}</td>"
        f"<td>{metrics.expected_first:,.1f}</td><td>{usual_z}</td></tr></tbody></table>"
        "</div>"
    )


def rows(sample: Sample, n: int) -> str:
    """Return some records of the sample."""
    chosen = np.linspace(0, sample.n_records - 1, min(n, sample.n_records)).astype(int)
    found = [sample.row(i) for i in dict.fromkeys(chosen.tolist())]
    names: list[Any] = [name for name in sample.schema if name in sample.batch]
    cells = [[as_text(name), *(_cell(row[name]) for row in found)] for name in names]
    header = ["column", *(f"sample {i}" for i in range(len(found)))]
    return (
        _heading("Records") + f'<div class="card scroll">{table(header, cells)}</div>'
    )


def _cell(value: object) -> object:
    return preview(value) if picture_of(value) is None else value


def images(name: object, pictures: Sequence[Picture], n_left_out: int) -> str:
    """Return a contact sheet of one column."""
    figures = "".join(
        f'<figure><img src="{uri}" alt="">'
        f"<figcaption>{escaped(caption)}</figcaption></figure>"
        for uri, caption in pictures
    )
    note = ""
    if n_left_out:
        note = f'<p class="soft">{counted(n_left_out, "image")} not shown: damaged, or too large.</p>'
    return (
        _heading(f"Images: {as_text(name)}")
        + f'<div class="sheet">{figures}</div>{note}'
    )


def _heading(text: str) -> str:
    return f"<h2>{escaped(text)}</h2>"


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def _score(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"
