//! A text in memory with its encoding and its kind of newlines.
//!
//! Clients see and send `\n` only. Text that an edit does not touch keeps its newlines; new text
//! gets the prevalent kind of the file.

use std::ops::Range;

use super::charset::{Charset, EncodeError};

#[derive(Debug, Clone)]
pub(crate) struct TextDocument {
    charset: Charset,
    /// Text as in the file.
    raw: String,
    /// Text as clients see it; absent if it is the same.
    normalized: Option<String>,
}

impl TextDocument {
    pub(crate) fn decode(content: &[u8]) -> Self {
        let (charset, raw) = Charset::decode(content);
        Self::of(charset, raw)
    }

    pub(crate) fn of(charset: Charset, raw: String) -> Self {
        let normalized = raw.contains('\r').then(|| normalize_newlines(&raw));
        Self {
            charset,
            raw,
            normalized,
        }
    }

    pub(crate) fn text(&self) -> &str {
        self.normalized.as_deref().unwrap_or(&self.raw)
    }

    pub(crate) fn raw(&self) -> &str {
        &self.raw
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.charset.encode(&self.raw)
    }

    pub(crate) fn replace(&self, part: Range<usize>, new: &str) -> Self {
        let (start, end) = (self.raw_offset(part.start), self.raw_offset(part.end));
        let new = if self.prefers_crlf() {
            normalize_newlines(new).replace('\n', "\r\n")
        } else {
            new.to_owned()
        };
        let raw = [&self.raw[..start], &new, &self.raw[end..]].concat();
        Self::of(self.charset, raw)
    }

    /// Converts an offset in the text to one in the file.
    fn raw_offset(&self, offset: usize) -> usize {
        if self.normalized.is_none() {
            return offset;
        }
        let bytes = self.raw.as_bytes();
        let counted =
            |index: &usize| !(bytes[*index] == b'\r' && bytes.get(index + 1) == Some(&b'\n'));
        let found = (0..bytes.len()).filter(counted).nth(offset);
        let found = found.unwrap_or(bytes.len());
        // Before a CRLF, never between CR and LF.
        let between = found > 0 && bytes.get(found) == Some(&b'\n') && bytes[found - 1] == b'\r';
        found - usize::from(between)
    }

    fn prefers_crlf(&self) -> bool {
        let crlf = self.raw.matches("\r\n").count();
        crlf > 0 && 2 * crlf > self.raw.matches('\n').count()
    }
}

/// Converts all newlines to `\n`.
pub(crate) fn normalize_newlines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replace_keeps_kind_of_newlines() {
        let document = TextDocument::decode(b"a\r\nb\nc\r\n");
        assert_eq!(document.text(), "a\nb\nc\n");
        let replaced = document.replace(2..3, "x\ny");
        assert_eq!(replaced.encode().unwrap(), b"a\r\nx\r\ny\nc\r\n");
        let joined = document.replace(1..2, "-");
        assert_eq!(joined.encode().unwrap(), b"a-b\nc\r\n");
        let appended = document.replace(6..6, "d\r\n");
        assert_eq!(appended.encode().unwrap(), b"a\r\nb\nc\r\nd\r\n");
        let unix = TextDocument::decode(b"a\nb\n").replace(0..1, "x\r\n");
        assert_eq!(unix.encode().unwrap(), b"x\r\n\nb\n");
    }

    #[test]
    fn replace_changes_only_the_given_part() {
        for raw in ["\r\n", "a\r\rb\r\n\r\n", "\r", "é\r\nü\rö\nä", "\n\r\n\r"] {
            let document = TextDocument::decode(raw.as_bytes());
            let text = document.text().to_owned();
            for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
                assert_eq!(document.replace(at..at, "").raw, raw, "{raw:?} at {at}");
                let marked = document.replace(at..at, "X");
                assert_eq!(marked.raw.replace('X', ""), raw);
                assert_eq!(marked.text(), [&text[..at], "X", &text[at..]].concat());
            }
        }
    }
}
