"""A matplotlib figure as inline SVG: small, the same bytes for the same data, for both themes.

Letters stay letters in the reader's font, numbers have two decimals, black becomes the page's text
color, and identifiers carry a hash of the picture, so that several pictures on one page do not mix
up their clip paths and markers. The picture scales down to the width of a phone.
"""

import hashlib
import html
import io
import itertools
import re
import xml.etree.ElementTree as ET

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
ROUNDED = ("d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "points")


def svg(figure, alt):
    """Return ``figure`` as an ``<svg>`` element whose text alternative is ``alt``.

    Raises:
        TypeError: not a matplotlib figure.
        ValueError: ``alt`` is empty.
    """
    if not isinstance(figure, Figure):
        raise TypeError(f"{figure!r} is no matplotlib Figure")
    alt = " ".join(str(alt).split())
    if not alt:
        raise ValueError("alt is empty: say in words what the figure shows")
    root = ET.fromstring(_rendered(figure))
    _drop_unused_ids(root)
    width, height = (float(n) for n in root.get("viewBox").split()[2:])
    _clean(root)
    for name in list(root.attrib):
        del root.attrib[name]
    body = "".join(ET.tostring(child, encoding="unicode") for child in root)
    body = body.replace("ns0:", "").replace(f' xmlns:ns0="{SVG[1:-1]}"', "")
    body = _with_own_ids(body)
    points = 4 / 3  # matplotlib's unit is 1/72 inch, the page's 1/96
    look = (
        f"display:block;width:100%;max-width:{width * points:.0f}px;height:auto;fill:currentColor;"
        "font-family:sans-serif;stroke-linejoin:round;stroke-linecap:butt"
    )
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{html.escape(alt)}" '
        f'style="{look}">{body}</svg>'
    )


def _rendered(figure):
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_visible(False)
    out = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "lsdl"}):
        # Not savefig, which draws every figure twice.
        FigureCanvasSVG(figure).print_svg(out, metadata=nothing)
    plt.close(figure)  # else a notebook shows it a second time, as an image without alt text
    return out.getvalue()


def _clean(element):
    """Shorten an element and all below it, without a change of the picture."""
    children = []
    for child in element:
        # A style element here would be a rule for the whole page.
        if child.tag in (f"{SVG}metadata", f"{SVG}style"):
            continue
        _clean(child)
        bare = child.tag == f"{SVG}g" and not child.attrib
        children += list(child) if bare else [child] * _is_visible(child)
    element[:] = _grouped(children)
    _clean_attributes(element)
    if len(element) or element.tag not in (f"{SVG}text", f"{SVG}tspan"):
        element.text = None
    element.tail = None


def _is_visible(element):
    if element.tag in (f"{SVG}g", f"{SVG}defs"):
        return len(element) > 0
    return element.get("style") != "fill:none"


def _grouped(children):
    """Put neighbors of equal style, such as ticks, into one group that carries the style."""
    result = []
    for style, same in itertools.groupby(children, key=lambda child: child.get("style")):
        same = list(same)
        # Opacity of a group is not opacity of its members; text in a text is no group.
        mixes = style and (re.search(r"(^|;)opacity", style) or same[0].tag == f"{SVG}tspan")
        if style and len(same) > 1 and not mixes:
            group = ET.Element(f"{SVG}g", {"style": style})
            for child in same:
                del child.attrib["style"]
                group.append(child)
            same = [group]
        result += same
    return result


def _clean_attributes(element):
    for name, value in list(element.attrib.items()):
        if name in ROUNDED or (name == "transform" and "scale" not in value):
            value = _rounded(value)
        if name == "transform" and re.match(r"rotate\(-?0 ", value):
            del element.attrib[name]
            continue
        if name == "d":
            value = re.sub(r"\s*([A-Za-z])\s*", r"\1", value).strip()
        elif name == "style":
            value = _page_style(value)
        elif name == f"{XLINK}href":
            del element.attrib[name]
            name = "href"
        element.set(name, value)


def _rounded(text):
    def two_decimals(match):
        short = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
        return "0" if short == "-0" else short

    return re.sub(r"-?\d+\.\d+(e-?\d+)?", two_decimals, re.sub(r"\s*\n\s*", " ", text))


def _page_style(text):
    text = re.sub(r"(fill|stroke): (#000000|black)(?=;|$)", r"\1: currentColor", text)
    text = re.sub(r"'[^;]*?sans-serif", "sans-serif", text)
    text = re.sub(r"; font-family: [^;]*", "", text)
    return re.sub(r"([:;]) ", r"\1", text)


def _drop_unused_ids(root):
    values = " ".join(value for element in root.iter() for value in element.attrib.values())
    used = set(re.findall(r"#([\w.-]+)", values))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)


def _with_own_ids(body):
    """Rename identifiers to a hash of this picture and a number."""
    prefix = "f" + hashlib.sha256(body.encode()).hexdigest()[:8]
    numbers = {name: i for i, name in enumerate(re.findall(r' id="([^"]*)"', body))}
    return re.sub(
        r'(url\(#| id="|href="#)([^")]*)', lambda m: f"{m[1]}{prefix}-{numbers[m[2]]}", body
    )
