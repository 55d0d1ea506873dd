"""Compares observations field by field. ALLOWED says what may differ everywhere; the rest must be equal, or be listed in
differences.json."""
import base64
import difflib
import io
import re

import numpy
import PIL.Image

ALLOWED = [
    ("all", "port of the test's own server", "another one in each run"),
    ("tree", "rows `InlineTextBox`", "Chromium 156 adds them, they repeat the row above"),
    ("tree, axtree_object", "numbers of list markers", "the original writes the attribute `value`, which renumbers lists"),
    ("axtree_object, extra_element_properties", "order of keys", "it means nothing in JSON"),
    ("axtree_object", "nodes without a way to them from the root", "documents of `object` and `embed`, which load at any time"),
    ("axtree_object", "identifiers of nodes and frames, order of frames", "they name objects of one process; links between nodes are compared"),
    ("extra_element_properties", "`visibility` by 0.02, `bbox` by 1 px", "rounding while a page settles"),
    ("last_browser_action_error", "call log, but for the line that tells the reason", "it counts tries and milliseconds"),
    ("screenshot", "single pixels, 1.0 of 255 on average", "carets blink"),
    ("set_of_marks", "single pixels, 8.0 of 255 on average", "labels have another font, dashes begin elsewhere"),
    ("markdown", "all but headings and links, in their order", "the original's text has noise of its parsers"),
]
# Lines of a call log that tell why an operation failed; the last of them is compared.
TELLING = re.compile(
    r"element (is not \w+|is outside of the viewport|was detached.*)|.* intercepts pointer events|did not find some options"
    r"|option being selected is not enabled|navigating to .*"
)


def telling_line(error):
    lines = [line.strip().removeprefix("- ") for line in error.split("\n")[1:]]
    return next((line for line in reversed(lines) if TELLING.fullmatch(line)), "")


def without_number(line):
    """A line about a list marker such as `4.` or `iv.`, without its number."""
    return re.sub(r"ListMarker '\w+\.( ?)'", r"ListMarker '1.\1'", line)


def tree_rows(tree):
    return [without_number(row) for row in tree.split("\n") if not re.match(r"\t*InlineTextBox ", row)]


def compare_equal(original, ours):
    return [] if original == ours else [f"- {original!r}", f"+ {ours!r}"]


def compare_lines(original, ours):
    if original == ours:
        return []
    diff = difflib.unified_diff(original, ours, n=0, lineterm="")
    return [line for line in diff if not line.startswith(("---", "+++", "@@"))]


def compare_tree(original, ours):
    return compare_lines(tree_rows(original), tree_rows(ours))


def compare_error(original, ours):
    head, reason = original.split("\n")[0], telling_line(original)
    lines = [line.strip().removeprefix("- ") for line in ours.split("\n")]
    found = compare_equal(head, lines[0])
    return found if found or not reason or reason in lines else [f"- {reason}", f"+ {ours!r}"]


def flat(value, path=""):
    """The leaves of a JSON value by their paths, without what identifies objects inside of one browser."""
    if isinstance(value, dict):
        parts = [(f"{path}.{key}", part) for key, part in value.items()
                 if key not in ("backendDOMNodeId", "frameId", "nodeId", "parentId", "childIds")]
    elif isinstance(value, list):
        parts = [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    else:
        return {path: value}
    return {key: leaf for name, part in parts for key, leaf in flat(part, name).items()}


def nodes_in_order(tree):
    """The nodes of a tree from the root down, each under a line with depth, role and name."""
    nodes = {node["nodeId"]: node for node in tree.get("nodes", [])}
    order, seen, stack = [], set(), [(key, 0) for key in list(nodes)[:1]]
    while stack:
        key, depth = stack.pop()
        if key in nodes and key not in seen:
            seen.add(key)
            node = nodes[key]
            line = f"{depth} {node['role']['value']} {node.get('name', {}).get('value')!r}"
            order.append((without_number(line), node))
            stack += [(child, depth + 1) for child in reversed(node.get("childIds", []))]
    return order


def compare_nodes(original, ours):
    left, right = nodes_in_order(original), nodes_in_order(ours)
    found = compare_lines([line for line, _ in left], [line for line, _ in right])
    if found:
        return found
    for (line, one), (_, other) in zip(left, right):
        if " ListMarker " in line:
            continue  # compared by the lines
        one, other = flat(one), flat(other)
        for path in [path for path in {**one, **other} if one.get(path) != other.get(path)]:
            found += [f"- {line}: {path} {one.get(path)!r}", f"+ {line}: {path} {other.get(path)!r}"]
    return found


def near(original, ours, distance):
    if original is None or ours is None:
        return original is ours
    return abs(original - ours) <= distance


def compare_properties(original, ours):
    found = compare_lines(sorted(original), sorted(ours))
    for bid in original.keys() & ours.keys():
        left, right = original[bid], ours[bid]
        boxes = left["bbox"], right["bbox"]
        same = (
            near(left["visibility"], right["visibility"], 0.02)
            and (all(map(near, *boxes, [1] * 4)) if all(boxes) else boxes[0] == boxes[1])
            and left["clickable"] == right["clickable"]
            and left["set_of_marks"] == right["set_of_marks"]
        )
        if not same:
            found += [f"- {bid} {left}", f"+ {bid} {right}"]
    return found


def pixels(url):
    data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    return numpy.asarray(PIL.Image.open(io.BytesIO(data)).convert("RGB"), dtype=numpy.int16)


def compare_pixels(limit):
    def compare(original, ours):
        left, right = pixels(original), pixels(ours)
        if left.shape != right.shape:
            return compare_equal(left.shape, right.shape)
        distance = float(numpy.abs(left - right).mean())
        return [] if distance <= limit else [f"differs by {distance:.2f} on average"]

    return compare


def headings_and_links(text):
    """Lines of headings, and links with text and target, without spaces and the marks of emphasis around them."""
    text = re.sub(r"<::?[\w-]+>", "", text)
    found = []
    for line in text.split("\n"):
        if heading := re.match(r" *(#+)\s+(.*)", line):
            found.append(heading[1] + " " + re.sub(r"[*_`\s]+", " ", heading[2]).strip())
        found += [f"[{re.sub(r'[*_`\s]+', ' ', words).strip()}]({target})" for words, target in re.findall(r"(?<!!)\[([^\]]*)\]\(([^)]*)\)", line)]
    return found


def compare_markdown(original, ours):
    return compare_lines(headings_and_links(original), headings_and_links(ours))


FIELDS = {
    "raised": compare_equal,
    "url": compare_equal,
    "open_pages_urls": compare_equal,
    "active_page_index": compare_equal,
    "last_browser_action": compare_equal,
    "error": compare_equal,
    "last_browser_action_error": compare_error,
    "focused_element_bid": compare_equal,
    "tree": compare_tree,
    "tree_error": compare_equal,
    "axtree_object": compare_nodes,
    "extra_element_properties": compare_properties,
    "screenshot": compare_pixels(1.0),
    "set_of_marks": compare_pixels(8.0),
    "markdown": compare_markdown,
}


def compare_answers(original, ours):
    """Fields that differ, each with lines that show how. An answer that says the step failed has that field alone."""
    found = {}
    for field in ["raised"] if "raised" in original or "raised" in ours else FIELDS:
        left, right = original.get(field), ours.get(field)
        compare = FIELDS[field] if type(left) is type(right) is not type(None) else compare_equal
        found[field] = compare(left, right)
    return {field: lines for field, lines in found.items() if lines}
