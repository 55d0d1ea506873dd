"""What an agent's kernel knows from its start: ``from agentskills import *``."""

import os as _os

# The kernel has found this file; what it starts need not.
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

# The ones that ask a model need a key, and those that look at whole repositories need the
# library that indexes them; a sandbox may have either.
if _os.environ.get("OPENAI_API_KEY") or _os.environ.get("SANDBOX_ENV_OPENAI_API_KEY"):
    from agentskills_models import parse_audio, parse_image, parse_video

    __all__ += ["parse_audio", "parse_image", "parse_video"]

try:
    from openhands_aci.indexing.locagent.tools import (  # noqa: F401
        explore_tree_structure,
        get_entity_contents,
        search_code_snippets,
    )
except Exception:
    pass
else:
    __all__ += ["explore_tree_structure", "get_entity_contents", "search_code_snippets"]
