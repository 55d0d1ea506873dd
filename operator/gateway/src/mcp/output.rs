//! Results of tools: bounded text, images and JSON.

use std::fmt;

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;

use super::backend::ToolError;

/// Maximum of characters of a text. Longer ones keep both ends.
pub(super) const MAX_TEXT_CHARS: usize = 50_000;
/// Maximum of bytes of an image in base64, which is what models accept.
const MAX_IMAGE_BYTES: usize = 5 << 20;
/// Maximum of bytes of a media type.
const MAX_KIND_BYTES: usize = 64;
/// Maximum of images of a result.
const MAX_IMAGES: usize = 4;

pub(super) type ToolResult = Result<CallToolResult, ToolError>;

/// Text that grows in parts and keeps both ends: its middle is dropped from
/// [`MAX_TEXT_CHARS`] characters on.
#[derive(Debug, Default)]
pub(super) struct BoundedText {
    kept: String,
    /// Characters that were dropped.
    cut: usize,
}

impl BoundedText {
    /// Adds a part on a line of its own.
    pub(super) fn push(&mut self, part: &str) {
        if !self.kept.is_empty() && !part.is_empty() {
            self.kept.push('\n');
        }
        self.kept.push_str(part);
        let count = self.kept.chars().count();
        if count > MAX_TEXT_CHARS {
            let half = MAX_TEXT_CHARS / 2;
            let middle = self.offset(half)..self.offset(count - half);
            self.kept.replace_range(middle, "");
            self.kept.shrink_to(MAX_TEXT_CHARS);
            self.cut += count - 2 * half;
        }
    }

    fn offset(&self, chars: usize) -> usize {
        let mut offsets = self.kept.char_indices();
        offsets.nth(chars).map_or(self.kept.len(), |(at, _)| at)
    }
}

impl fmt::Display for BoundedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cut == 0 {
            return f.write_str(&self.kept);
        }
        let (head, tail) = self.kept.split_at(self.offset(MAX_TEXT_CHARS / 2));
        let cut = self.cut;
        write!(
            f,
            "{head}\n[... {cut} characters were cut here ...]\n{tail}"
        )
    }
}

/// Cuts the middle out of a long text and says how much is missing.
pub(super) fn bounded(text: &str) -> String {
    let mut whole = BoundedText::default();
    whole.push(text);
    whole.to_string()
}

pub(super) fn text(text: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(bounded(text))])
}

/// A result that programs read as JSON and models as text.
pub(super) fn structured(text: &str, value: &impl Serialize) -> ToolResult {
    let mut whole = BoundedText::default();
    whole.push(text);
    structured_parts(&whole, value)
}

/// The same for a text of several parts.
pub(super) fn structured_parts(text: &BoundedText, value: &impl Serialize) -> ToolResult {
    let value = serde_json::to_value(value);
    let value = value.map_err(|error| ToolError(format!("cannot write the result: {error}")))?;
    let mut result = CallToolResult::success(vec![ContentBlock::text(text.to_string())]);
    result.structured_content = Some(value);
    Ok(result)
}

/// Text followed by the images of data URLs. Images beyond the limits are named.
pub(super) fn with_images(text: &str, urls: &[String]) -> CallToolResult {
    let mut result = self::text(text);
    for url in urls.iter().take(MAX_IMAGES) {
        result
            .content
            .push(image(url).unwrap_or_else(ContentBlock::text));
    }
    if let Some(more) = urls.len().checked_sub(MAX_IMAGES).filter(|more| *more > 0) {
        let note = format!("[{more} more images were left out]");
        result.content.push(ContentBlock::text(note));
    }
    result
}

/// Reads a data URL.
pub(super) fn image(url: &str) -> Result<ContentBlock, &'static str> {
    let parts = url
        .strip_prefix("data:")
        .and_then(|url| url.split_once(";base64,"));
    let (kind, data) = parts.ok_or("[an image in an unknown form was left out]")?;
    if !kind.starts_with("image/") || kind.len() > MAX_KIND_BYTES {
        return Err("[a file that is not an image was left out]");
    }
    if data.len() > MAX_IMAGE_BYTES {
        return Err("[an image of more than 5 MiB was left out]");
    }
    Ok(ContentBlock::image(data, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_keeps_both_ends_and_names_the_cut() {
        let long = format!("a{}z", "ü".repeat(MAX_TEXT_CHARS));
        let cut = bounded(&long);
        assert!(cut.starts_with("aü") && cut.ends_with("üz"), "{cut}");
        assert!(cut.contains("[... 2 characters were cut here ...]"));
        assert_eq!(bounded("short"), "short");
    }

    #[test]
    fn text_of_many_parts_stays_bounded() {
        let mut text = BoundedText::default();
        for _ in 0..100 {
            text.push(&"ü".repeat(MAX_TEXT_CHARS));
            assert!(text.kept.capacity() <= 2 * MAX_TEXT_CHARS);
        }
        text.push("end");
        let whole = text.to_string();
        // The parts and the newlines between them.
        let cut = 99 * MAX_TEXT_CHARS + 3 + 100;
        assert!(whole.contains(&format!("[... {cut} characters were cut here ...]")));
        assert!(whole.ends_with("ü\nend"));
    }

    #[test]
    fn image_is_read_from_a_data_url_only() {
        assert!(image("data:image/png;base64,AAAA").is_ok());
        for url in [
            "http://a/b.png",
            "data:text/html;base64,AAAA",
            "data:image/png,AAAA",
        ] {
            assert!(image(url).is_err(), "{url}");
        }
        let huge = format!("data:image/png;base64,{}", "A".repeat(MAX_IMAGE_BYTES + 1));
        assert!(image(&huge).is_err());
        let kind = "a".repeat(MAX_KIND_BYTES);
        assert!(image(&format!("data:image/{kind};base64,AAAA")).is_err());
    }
}
