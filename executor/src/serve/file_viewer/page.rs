//! Pages of the file viewer. They load nothing from the network.

use std::path::Path;

use http::StatusCode;

use crate::serve::files;

/// PDF.js, compressed with gzip.
pub(super) const PDF: &[u8] = include_bytes!("../../../assets/pdf.min.mjs.gz");
pub(super) const PDF_WORKER: &[u8] = include_bytes!("../../../assets/pdf.worker.min.mjs.gz");

const EXTENSIONS: &str = ".pdf, .png, .jpg, .jpeg, .gif";
const STYLE: &str = "body{margin:0;background:#525659;text-align:center}\
    canvas,img{display:block;margin:10px auto;background:#fff;max-width:100%}";
/// Script that draws each page of the document in `data` on a canvas.
const SHOW_PDF: &str = include_str!("../../../scripts/show_pdf.mjs");

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ViewError {
    Relative,
    Missing,
    Directory,
    Failed(String),
}

/// Returns the media type of a file that can be shown.
pub(super) fn media_type(path: &Path) -> Result<&'static str, ViewError> {
    let shown = ["application/pdf", "image/png", "image/jpeg", "image/gif"];
    let found = files::media_type(path).filter(|media_type| shown.contains(media_type));
    found.ok_or_else(|| {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let extension = extension.to_ascii_lowercase();
        let dot = if extension.is_empty() { "" } else { "." };
        ViewError::Failed(format!(
            "Unsupported file extension: {dot}{extension}. Supported extensions are: {EXTENSIONS}"
        ))
    })
}

impl ViewError {
    pub(super) fn page(&self, path: &str) -> (StatusCode, String) {
        let (status, title, reason) = match self {
            Self::Relative => (
                StatusCode::BAD_REQUEST,
                "Error: Path must be absolute",
                None,
            ),
            Self::Missing => (StatusCode::NOT_FOUND, "Error: File not found", None),
            Self::Directory => (StatusCode::BAD_REQUEST, "Error: Path is a directory", None),
            Self::Failed(reason) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "Error viewing file",
                Some(reason),
            ),
        };
        let reason = reason.map(|reason| format!("<p>{}</p>", escape(reason)));
        let reason = reason.unwrap_or_default();
        (
            status,
            format!("<h1>{title}</h1><p>{}</p>{reason}", escape(path)),
        )
    }
}

/// Page that embeds a file. `content` is base64.
pub(super) fn page(path: &str, media_type: &str, content: &str) -> String {
    let name = escape(path.rsplit('/').next().unwrap_or_default());
    let body = if media_type == "application/pdf" {
        format!("<script type=\"module\">const data = \"{content}\";\n{SHOW_PDF}</script>")
    } else {
        format!("<img alt=\"{name}\" src=\"data:{media_type};base64,{content}\">")
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
        let page = page(path, media_type(Path::new(path)).unwrap(), "AAAA");
        assert!(page.contains(
            "<img alt=\"&quot;&gt;&lt;script&gt;&amp;.png\" src=\"data:image/png;base64,AAAA\">"
        ));
        assert!(!page.contains("<script>"));
        assert!(!ViewError::Missing.page(path).1.contains("<script>"));
    }
}
