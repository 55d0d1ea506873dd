//! Pages of the file viewer. They load nothing from the network.

use std::path::Path;

/// PDF.js, compressed with gzip.
pub(super) const PDF: &[u8] = include_bytes!("../../../assets/pdf.min.mjs.gz");
pub(super) const PDF_WORKER: &[u8] = include_bytes!("../../../assets/pdf.worker.min.mjs.gz");

const EXTENSIONS: &str = ".pdf, .png, .jpg, .jpeg, .gif";
const STYLE: &str = "body{margin:0;background:#525659;text-align:center}\
    canvas,img{display:block;margin:10px auto;background:#fff;max-width:100%}";
/// Script that draws each page of the document in `data` on a canvas.
const SHOW_PDF: &str = r#"
import * as pdfjs from "/pdf.min.mjs";
pdfjs.GlobalWorkerOptions.workerSrc = "/pdf.worker.min.mjs";
const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
const pdf = await pdfjs.getDocument({ data: bytes }).promise;
for (let number = 1; number <= pdf.numPages; number++) {
  const page = await pdf.getPage(number);
  const viewport = page.getViewport({ scale: 1.5 });
  const canvas = document.createElement("canvas");
  canvas.className = "page";
  canvas.width = viewport.width;
  canvas.height = viewport.height;
  document.body.append(canvas);
  await page.render({ canvasContext: canvas.getContext("2d"), viewport }).promise;
}
"#;

/// File types that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViewableKind {
    Pdf,
    /// Image with its media type.
    Image(&'static str),
}

/// Reason why a file cannot be shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ViewError {
    Relative,
    Missing,
    Directory,
    Failed(String),
}

impl ViewableKind {
    pub(super) fn of(path: &Path) -> Result<Self, ViewError> {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let extension = extension.to_ascii_lowercase();
        match extension.as_str() {
            "pdf" => Ok(Self::Pdf),
            "png" => Ok(Self::Image("image/png")),
            "jpg" | "jpeg" => Ok(Self::Image("image/jpeg")),
            "gif" => Ok(Self::Image("image/gif")),
            other => {
                let dot = if other.is_empty() { "" } else { "." };
                Err(ViewError::Failed(format!(
                    "Unsupported file extension: {dot}{other}. Supported extensions are: {EXTENSIONS}"
                )))
            }
        }
    }
}

impl ViewError {
    pub(super) fn page(&self, path: &str) -> String {
        let path = escape(path);
        match self {
            Self::Relative => format!("<h1>Error: Path must be absolute</h1><p>{path}</p>"),
            Self::Missing => format!("<h1>Error: File not found</h1><p>{path}</p>"),
            Self::Directory => format!("<h1>Error: Path is a directory</h1><p>{path}</p>"),
            Self::Failed(reason) => {
                let reason = escape(reason);
                format!("<h1>Error viewing file</h1><p>{path}</p><p>{reason}</p>")
            }
        }
    }
}

/// Page that embeds a file. `content` is base64.
pub(super) fn page(path: &str, kind: ViewableKind, content: &str) -> String {
    let name = escape(path.rsplit('/').next().unwrap_or_default());
    let body = match kind {
        ViewableKind::Image(mime) => {
            format!("<img alt=\"{name}\" src=\"data:{mime};base64,{content}\">")
        }
        ViewableKind::Pdf => {
            format!("<script type=\"module\">const data = \"{content}\";{SHOW_PDF}</script>")
        }
    };
    format!(
        "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>File Viewer - {name}</title>\
         <style>{STYLE}</style></head><body>{body}</body></html>"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_escapes_file_names() {
        let path = "/a/\"><script>&.png";
        let kind = ViewableKind::of(Path::new(path)).unwrap();
        let page = page(path, kind, "AAAA");
        assert!(page.contains(
            "<img alt=\"&quot;&gt;&lt;script&gt;&amp;.png\" src=\"data:image/png;base64,AAAA\">"
        ));
        assert!(!page.contains("<script>"));
        assert!(!ViewError::Missing.page(path).contains("<script>"));
    }

    #[test]
    fn pdf_page_loads_nothing_from_the_network() {
        let page = page("/a.pdf", ViewableKind::Pdf, "AAAA");
        assert!(
            page.contains("canvas.className = \"page\"") && page.contains("File Viewer - a.pdf")
        );
        assert!(!page.contains("http"));
    }
}
