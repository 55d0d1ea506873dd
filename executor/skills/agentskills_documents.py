"""Skills that print the text of documents. Office files need the standard library only; the other
skills name the library that they need if the image lacks it.
"""

import os
import re
import zipfile
from xml.etree import ElementTree

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"


def _report_missing(library):
    print(f"ERROR: the library {library} is needed: pip install {library}")


def _pdf_text(file_path):
    try:
        from pypdf import PdfReader
    except ImportError:
        from PyPDF2 import PdfReader
    pages = PdfReader(file_path).pages
    return "\n\n".join(f"@@ Page {number} @@\n{page.extract_text()}" for number, page in enumerate(pages, 1))


def parse_pdf(file_path):
    """Prints the text of a PDF, page by page."""
    try:
        text = _pdf_text(file_path)
    except ImportError:
        _report_missing("pypdf")
        return
    print(f"[Reading PDF file from {file_path}]")
    print(text)


def document_text(file_path):
    """Returns the text of a PDF, Word or PowerPoint file; None for other files and without a library."""
    extension = os.path.splitext(file_path)[1].lower()
    reader = {".pdf": _pdf_text, ".docx": _docx_text, ".pptx": _pptx_text}.get(extension)
    try:
        return reader(file_path) if reader else None
    except Exception:
        # The editor reports that it cannot convert the file.
        return None


def parse_docx(file_path):
    """Prints the paragraphs of a Word document."""
    print(f"[Reading DOCX file from {file_path}]")
    print(_docx_text(file_path))


def _docx_text(file_path):
    with zipfile.ZipFile(file_path) as archive:
        root = ElementTree.fromstring(archive.read("word/document.xml"))
    paragraphs = ["".join(_word_text(paragraph)) for paragraph in root.iter(f"{_WORD}p")]
    return "".join(f"@@ Page {number} @@\n{paragraph}\n\n" for number, paragraph in enumerate(paragraphs, 1))


def _word_text(paragraph):
    for element in paragraph.iter():
        if element.tag == f"{_WORD}t":
            yield element.text or ""
        elif element.tag == f"{_WORD}tab":
            yield "\t"
        elif element.tag in (f"{_WORD}br", f"{_WORD}cr"):
            yield "\n"


def parse_latex(file_path):
    """Prints the text of a LaTeX file."""
    try:
        from pylatexenc.latex2text import LatexNodes2Text
    except ImportError:
        _report_missing("pylatexenc")
        return
    print(f"[Reading LaTex file from {file_path}]")
    with open(file_path, encoding="utf-8") as file:
        print(LatexNodes2Text().latex_to_text(file.read()).strip())


def parse_pptx(file_path):
    """Prints the texts of a PowerPoint presentation, slide by slide."""
    print(f"[Reading PowerPoint file from {file_path}]")
    print(_pptx_text(file_path))


def _pptx_text(file_path):
    with zipfile.ZipFile(file_path) as archive:
        slides = [name for name in archive.namelist() if re.fullmatch(r"ppt/slides/slide\d+\.xml", name)]
        slides.sort(key=lambda name: int(re.search(r"\d+", name)[0]))
        texts = [_slide_text(archive.read(name)) for name in slides]
    return "\n\n".join(f"@@ Slide {number} @@\n{text}" for number, text in enumerate(texts, 1))


def _slide_text(xml):
    paragraphs = ElementTree.fromstring(xml).iter(f"{_DRAWING}p")
    lines = ("".join(run.text or "" for run in paragraph.iter(f"{_DRAWING}t")) for paragraph in paragraphs)
    return "\n".join(line for line in lines if line)
