"""The look of the SVG picture: colours for light and for dark pages, and sizes of text.

The picture brings its own ground, so it is readable on any page, and follows the reader's colour scheme
where the viewer knows it. Every rule is below `.penstock`, so that an inlined picture styles nothing else.
"""

from __future__ import annotations

from penstock.plan.picture import Shape

NAME_SIZE, TEXT_SIZE, LABEL_SIZE, TITLE_SIZE = 13.0, 11.0, 11.0, 15.0

_FONT = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, '
    "sans-serif"
)

# ground, ground's edge, strong text, soft text, lines, groups, aside
_LIGHT = ("#ffffff", "#d8dee4", "#1f2328", "#59636e", "#6e7781", "#8c959f", "#bc4c00")
_DARK = ("#0d1117", "#30363d", "#f0f6fc", "#9da7b3", "#8b949e", "#6e7681", "#f0883e")

# fill and edge of each shape
_LIGHT_SHAPES = {
    Shape.SOURCE: ("#e6f6ec", "#2da44e"),
    Shape.SINK: ("#fbeaf4", "#bf3989"),
    Shape.SPLIT: ("#e2f5f5", "#1b8a8f"),
    Shape.WINDOW: ("#e3effd", "#0969da"),
    Shape.JOIN: ("#f1eafd", "#8250df"),
    Shape.STEP: ("#f6f8fa", "#8c959f"),
}
_DARK_SHAPES = {
    Shape.SOURCE: ("#12261e", "#3fb950"),
    Shape.SINK: ("#2b1526", "#db61a2"),
    Shape.SPLIT: ("#0f2729", "#39c5cf"),
    Shape.WINDOW: ("#0f2440", "#58a6ff"),
    Shape.JOIN: ("#211b38", "#a371f7"),
    Shape.STEP: ("#161b22", "#768390"),
}


def style() -> str:
    """The style sheet."""
    fixed = [
        f"text{{font-family:{_FONT};font-size:{TEXT_SIZE:g}px}}",
        f".name{{font-size:{NAME_SIZE:g}px;font-weight:650}}",
        f".title{{font-size:{TITLE_SIZE:g}px;font-weight:650}}",
        f".label,.degree{{font-size:{LABEL_SIZE:g}px}}",
        ".name,.text,.label,.degree{text-anchor:middle}",
        ".label{paint-order:stroke;stroke-width:9px;stroke-linejoin:round}",
        ".degree{font-weight:650}",
        ".box{stroke-width:1.3}",
        ".group{fill:none;stroke-width:1.2;stroke-dasharray:5 4}",
        ".line{fill:none;stroke-width:1.5}",
        ".aside.line{stroke-dasharray:6 4}",
        ".control.line{stroke-dasharray:1.5 4;stroke-linecap:round}",
    ]
    light, dark = _colours(_LIGHT, _LIGHT_SHAPES), _colours(_DARK, _DARK_SHAPES)
    return (
        "\n".join(f".penstock {rule}" for rule in _each([*fixed, *light]))
        + "\n@media (prefers-color-scheme: dark) {\n"
        + "\n".join(f".penstock {rule}" for rule in _each(dark))
        + "\n}"
    )


def _colours(tones: tuple[str, ...], shapes: dict[Shape, tuple[str, str]]) -> list[str]:
    ground, edge, strong, soft, line, group, aside = tones
    rules = [
        f".ground{{fill:{ground};stroke:{edge}}}",
        f".label{{stroke:{ground}}}",
        f".name,.title{{fill:{strong}}}",
        f".text,.label{{fill:{soft}}}",
        f".group{{stroke:{group}}}",
        f".line{{stroke:{line}}}",
        f".tip{{fill:{line}}}",
        f".aside.line{{stroke:{aside}}}",
        f".aside.tip,.aside.label{{fill:{aside}}}",
        f".degree{{fill:{ground}}}",
    ]
    for shape, (fill, line_colour) in shapes.items():
        rules.append(f".box.{shape}{{fill:{fill};stroke:{line_colour}}}")
        rules.append(f".badge.{shape}{{fill:{line_colour}}}")
    return rules


def _each(rules: list[str]) -> list[str]:
    """Rules with several selectors, one selector each, so that each gets its `.penstock`."""
    found = []
    for rule in rules:
        selectors, _, body = rule.partition("{")
        found += [f"{selector}{{{body}" for selector in selectors.split(",")]
    return found
