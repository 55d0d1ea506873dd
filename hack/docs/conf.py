"""The site of docs/ as Sphinx builds it (hack/docs/build): README.md is its first page, `navigation` its sidebar."""
import posixpath
import re
from pathlib import Path

project = "Sandbox Operator"
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
html_title = project
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
html_theme_options = {"footer_icons": []}
myst_heading_anchors = 6
# Excerpts of JSON and of sessions do not parse as a whole.
suppress_warnings = ["misc.highlighting_failure"]
here = Path(__file__).parent


def toctree(pages, *options):
    return "\n\n```{toctree}\n" + "".join(f":{option}\n" for option in options) + "\n" + "\n".join(pages) + "\n```\n"


def navigation():
    """Text that each page gets at its end: the groups for the first page, its children for a page that has some."""
    ends = {}
    for line in (here / "navigation").read_text().splitlines():
        depth, entry = len(line) - len(line.lstrip()), line.strip()
        if line.startswith("#") or not entry:
            continue
        if depth == 0:
            group = entry
            ends[group] = ("index", [], (f"caption: {entry}", "hidden:"))
        elif depth == 2:
            page = entry
            ends[group][1].append("/" + page)
        else:
            ends.setdefault(page, (page, [], ("glob:", "hidden:", "titlesonly:")))[1].append("/" + entry)
    text = {}
    for page, children, options in ends.values():
        text[page] = text.get(page, "") + toctree(children, *options)
    return text


def link(page):
    """Rewrites one link of a page: the text alone remains of a link to a file that is not part of the site."""
    folder = "" if page == "index" else posixpath.dirname(f"docs/{page}")

    def rewrite(match):
        text, target = match[1], match[2]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, hash_sign, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(folder, path))
        if path == "README.md":
            path = "docs/" + "index.md"
        inside = path.startswith("docs/") and path.endswith(".md")
        return f"[{text}]({path[4:]}{hash_sign}{anchor})" if inside else text

    return rewrite


def read(_app, page, source):
    fence = re.compile(r"(^```.*?^```$)", re.S | re.M)
    parts = fence.split(source[0])
    parts[::2] = [re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)", link(page), part) for part in parts[::2]]
    source[0] = "".join(parts) + ENDS.get(page, "")


ENDS = navigation()


def setup(app):
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
