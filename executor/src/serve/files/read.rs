//! The action `read` with `impl_source: "default"` (`docs/specs/executor.md`, section 6.1).

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::binary::is_binary;
use super::error::FileError;
use super::{lines, text};
use crate::serve::action::Range;

/// Reads lines of text, or an image, PDF, video or sound as a data URL.
pub(in crate::serve) fn read(path: &Path, range: Range) -> Result<String, FileError> {
    if let Some(mime) = media_type(path) {
        let encoded = STANDARD.encode(text::bytes(path)?);
        return Ok(format!("data:{mime};base64,{encoded}"));
    }
    if is_binary(path) {
        return Err(FileError::Binary);
    }
    Ok(lines::select(&text::read(path)?, range))
}

fn media_type(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "bmp" => "image/bmp",
        "gif" => "image/gif",
        "pdf" => "application/pdf",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "ogg" => "audio/ogg",
        _ => return None,
    })
}
