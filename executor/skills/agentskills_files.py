"""Skills that show files in windows of 100 lines, search them and edit them.

They print their results; only ``file_editor`` returns a string.
"""

import json
import os
import socket
import uuid

from agentskills_documents import document_text

WINDOW = 100
MAX_MATCHES = 100
MAX_MATCHING_FILES = 100

_current_file = None
_current_line = 1


def _error(text):
    print(f"ERROR: {text}")
    return False


def _is_file(path):
    if not path or not os.path.isfile(path):
        return _error(f"File {path} not found.")
    return True


def _is_open():
    if _current_file is None:
        return _error("No file open. Use the open_file function first.")
    return _is_file(_current_file)


def _lines(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    return text.splitlines() or [""]


def _show(path, line, window, from_line=False):
    """Shows the window around a line, or from it on. Returns whether lines follow."""
    lines = _lines(path)
    total = len(lines)
    half = max(1, window // 2)
    first, last = max(1, line - half), min(total, line + half)
    if from_line:
        first, last = line, min(total, line + window)
    if first == 1:
        last = min(total, window)
    if last == total:
        first = max(1, total - window + 1)
    print(f"[File: {os.path.abspath(path)} ({total} lines total)]")
    print(f"({first - 1} more lines above)" if first > 1 else "(this is the beginning of the file)")
    for number in range(first, last + 1):
        print(f"{number}|{lines[number - 1]}")
    print(f"({total - last} more lines below)" if last < total else "(this is the end of the file)")
    return last < total


def _scroll(lines):
    """Moves by a number of lines within the file and shows the lines from there on."""
    global _current_line
    _current_line = max(1, min(_current_line + lines, len(_lines(_current_file))))
    _show(_current_file, _current_line, WINDOW, from_line=True)


def open_file(path, line_number=1, context_lines=WINDOW):
    """Opens a file and shows up to ``context_lines`` lines around ``line_number``.

    The lines come with their numbers. ``scroll_down`` and ``scroll_up`` show more.
    """
    global _current_file, _current_line
    if not _is_file(path):
        return
    total = len(_lines(path))
    if not isinstance(line_number, int) or not 1 <= line_number <= total:
        _error(f"Line number must be between 1 and {total}")
        return
    if context_lines is None or context_lines < 1:
        context_lines = WINDOW
    _current_file, _current_line = os.path.abspath(path), line_number
    if _show(_current_file, line_number, min(int(context_lines), WINDOW)):
        print(f"[Use `scroll_down` to view the next {WINDOW} lines of the file!]")


def goto_line(line_number):
    """Moves the window of the open file to a line."""
    global _current_line
    if not _is_open():
        return
    total = len(_lines(_current_file))
    if not isinstance(line_number, int) or not 1 <= line_number <= total:
        _error(f"Line number must be between 1 and {total}.")
        return
    _current_line = line_number
    _show(_current_file, line_number, WINDOW)


def scroll_down():
    """Moves the window of the open file down by 100 lines."""
    if _is_open():
        _scroll(WINDOW)


def scroll_up():
    """Moves the window of the open file up by 100 lines."""
    if _is_open():
        _scroll(-WINDOW)


def _visible_files(directory):
    """Paths of the files whose own name is not hidden, also those in hidden directories."""
    for root, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            if not name.startswith("."):
                yield os.path.join(root, name)


def _matches(path, term):
    try:
        with open(path, encoding="utf-8", errors="ignore") as file:
            for number, line in enumerate(file, 1):
                if term in line:
                    yield number, line.strip()
    except OSError:
        return


def search_dir(search_term, dir_path="./"):
    """Prints the lines that contain a text, in all visible files below a directory."""
    if not os.path.isdir(dir_path):
        _error(f"Directory {dir_path} not found")
        return
    found = [
        (path, number, line)
        for path in _visible_files(dir_path)
        for number, line in _matches(path, search_term)
    ]
    if not found:
        print(f'No matches found for "{search_term}" in {dir_path}')
        return
    files = len({path for path, _, _ in found})
    if files > MAX_MATCHING_FILES:
        print(
            f'More than {files} files matched for "{search_term}" in {dir_path}. '
            "Please narrow your search."
        )
        return
    print(f'[Found {len(found)} matches for "{search_term}" in {dir_path}]')
    for path, number, line in found:
        print(f"{path} (Line {number}): {line}")
    print(f'[End of matches for "{search_term}" in {dir_path}]')


def search_file(search_term, file_path=None):
    """Prints the lines of a file, or of the open one, that contain a text."""
    path = _current_file if file_path is None else file_path
    if path is None:
        _error("No file specified or open. Use the open_file function first.")
        return
    if not _is_file(path):
        return
    found = list(_matches(path, search_term))
    if not found:
        print(f'[No matches found for "{search_term}" in {path}]')
        return
    print(f'[Found {len(found)} matches for "{search_term}" in {path}]')
    for number, line in found:
        print(f"Line {number}: {line}")
    print(f'[End of matches for "{search_term}" in {path}]')


def find_file(file_name, dir_path="./"):
    """Prints the paths below a directory whose name contains a text."""
    if not os.path.isdir(dir_path):
        _error(f"Directory {dir_path} not found")
        return
    found = [
        os.path.join(root, name)
        for root, _, names in os.walk(dir_path)
        for name in names
        if file_name in name
    ]
    if not found:
        print(f'[No matches found for "{file_name}" in {dir_path}]')
        return
    print(f'[Found {len(found)} matches for "{file_name}" in {dir_path}]')
    for path in sorted(found):
        print(path)
    print(f'[End of matches for "{file_name}" in {dir_path}]')


def _send_edit(request):
    """Sends an edit to the server, whose editor also serves the action ``edit``."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "editor.sock")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as response:
            return json.loads(response.read())


def file_editor(
    command,
    path,
    file_text=None,
    view_range=None,
    old_str=None,
    new_str=None,
    insert_line=None,
    enable_linting=False,
):
    """Views, creates and edits files: view, create, str_replace, insert, undo_edit.

    Returns the result as JSON between two lines with a random mark.
    ``enable_linting`` is accepted and has no effect.
    """
    response = _send_edit(
        {
            "command": command,
            "path": str(path),
            "file_text": document_text(str(path)) if command == "view" else file_text,
            "view_range": view_range,
            "old_str": old_str,
            "new_str": new_str,
            "insert_line": insert_line,
        }
    )
    mark = f"oh_aci_output_{uuid.uuid4().hex}"
    return f"<{mark}>\n{json.dumps(response)}\n</{mark}>"
