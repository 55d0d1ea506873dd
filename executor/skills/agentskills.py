"""Skills that the kernel imports at its start: ``from agentskills import *``."""

import os as _os
from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

# Child processes of the kernel must not inherit the path of this directory.
_here = _os.path.dirname(_os.path.abspath(__file__))
_path = [entry for entry in _os.environ.get("PYTHONPATH", "").split(_os.pathsep) if entry not in ("", _here)]
if _path:
    _os.environ["PYTHONPATH"] = _os.pathsep.join(_path)
else:
    _os.environ.pop("PYTHONPATH", None)

from agentskills_documents import parse_docx, parse_latex, parse_pdf, parse_pptx
from agentskills_files import (
    file_editor,
    find_file,
    goto_line,
    open_file,
    scroll_down,
    scroll_up,
    search_dir,
    search_file,
)

__all__ = [
    "file_editor",
    "find_file",
    "goto_line",
    "open_file",
    "parse_docx",
    "parse_latex",
    "parse_pdf",
    "parse_pptx",
    "scroll_down",
    "scroll_up",
    "search_dir",
    "search_file",
]

# These skills call a model and need its API key.
if _os.environ.get("OPENAI_API_KEY") or _os.environ.get("SANDBOX_ENV_OPENAI_API_KEY"):
    from agentskills_models import parse_audio, parse_image, parse_video

    __all__ += ["parse_audio", "parse_image", "parse_video"]

# `openhands_aci` takes seconds to import, so its functions import it at their first call.
_ACI_TOOLS = "openhands_aci.indexing.locagent.tools"


def _has_aci_tools():
    """Returns whether the module exists, without importing its packages."""
    package, *path = _ACI_TOOLS.split(".")
    spec = _find_spec(package)
    roots = (spec and spec.submodule_search_locations) or []
    return any(_os.path.isfile(_os.path.join(root, *path) + ".py") for root in roots)


def _lazy(name):
    def skill(*args, **kwargs):
        return getattr(_import_module(_ACI_TOOLS), name)(*args, **kwargs)

    skill.__name__ = skill.__qualname__ = name
    skill.__doc__ = f"Calls `{_ACI_TOOLS}.{name}`."
    return skill


if _has_aci_tools():
    explore_tree_structure = _lazy("explore_tree_structure")
    get_entity_contents = _lazy("get_entity_contents")
    search_code_snippets = _lazy("search_code_snippets")
    __all__ += ["explore_tree_structure", "get_entity_contents", "search_code_snippets"]
