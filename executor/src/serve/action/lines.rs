//! Line numbers and ranges of lines in arguments.

/// A line number; models also send text.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::serve) enum LineNumber {
    Number(i64),
    Text(String),
}

impl LineNumber {
    /// Returns the number, or the text if it is not a number.
    pub(in crate::serve) fn number(&self) -> Result<i64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => text.trim().parse().map_err(|_| text.clone()),
        }
    }
}

/// Range of lines, from 0; an end of -1 means all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) struct Range {
    pub(in crate::serve) start: i64,
    pub(in crate::serve) end: i64,
}
