//! Body of `POST /terminals` (`docs/specs/executor.md`, section 13.1).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::message::TerminalSize;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::serve) enum RequestError {
    #[error("the body is not a terminal: {0}")]
    Json(String),
    #[error("command must not be empty")]
    NoCommand,
    #[error("columns and rows must be 1 to 1000")]
    Size,
    #[error("{0} must not contain a NUL byte")]
    Nul(&'static str),
    #[error("environment has the name {0:?}, which must not be empty or contain =")]
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::serve) struct TerminalRequest {
    /// Program and arguments; the user's shell if there are none.
    pub(super) command: Option<Vec<String>>,
    pub(super) tty: bool,
    pub(super) size: TerminalSize,
    pub(super) working_directory: Option<PathBuf>,
    pub(super) environment: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    command: Option<Vec<String>>,
    tty: Option<bool>,
    columns: Option<u16>,
    rows: Option<u16>,
    working_directory: Option<String>,
    environment: Option<BTreeMap<String, String>>,
}

impl TerminalRequest {
    /// Reads a body. An empty one asks for a shell.
    pub(in crate::serve) fn parse(body: &[u8]) -> Result<Self, RequestError> {
        let body = if body.is_empty() { b"{}" } else { body };
        let fields: Fields =
            serde_json::from_slice(body).map_err(|error| RequestError::Json(error.to_string()))?;
        let size = TerminalSize::checked(fields.columns.unwrap_or(80), fields.rows.unwrap_or(24));
        let request = Self {
            command: fields.command,
            tty: fields.tty.unwrap_or(true),
            size: size.ok_or(RequestError::Size)?,
            working_directory: fields.working_directory.map(PathBuf::from),
            environment: fields.environment.unwrap_or_default(),
        };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), RequestError> {
        let words = self.command.as_deref();
        if words.is_some_and(|words| words.first().is_none_or(String::is_empty)) {
            return Err(RequestError::NoCommand);
        }
        let directory = self.working_directory.as_ref();
        let directory = directory.and_then(|directory| directory.to_str());
        let values = self.environment.iter();
        let texts = [
            ("command", words.unwrap_or_default().concat()),
            (
                "working_directory",
                directory.unwrap_or_default().to_owned(),
            ),
            (
                "environment",
                values
                    .flat_map(|(name, value)| [name.as_str(), value])
                    .collect(),
            ),
        ];
        for (field, text) in texts {
            if text.contains('\0') {
                return Err(RequestError::Nul(field));
            }
        }
        let mut names = self.environment.keys();
        match names.find(|name| name.is_empty() || name.contains('=')) {
            Some(name) => Err(RequestError::Name(name.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(body: &str) -> String {
        TerminalRequest::parse(body.as_bytes())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn all_fields_are_optional() {
        let request = TerminalRequest::parse(b"").unwrap();
        assert_eq!(TerminalRequest::parse(b"{}").as_ref(), Ok(&request));
        assert!(request.tty && request.command.is_none());
        assert_eq!((request.size.width, request.size.height), (80, 24));
        let body = br#"{"command": ["a", ""], "tty": false, "columns": 1, "rows": 1000,
            "working_directory": "/w", "environment": {"A": "b=c"}}"#;
        let request = TerminalRequest::parse(body).unwrap();
        assert_eq!(request.command.unwrap(), ["a", ""]);
        assert_eq!(request.environment["A"], "b=c");
        assert!(!request.tty);
    }

    #[test]
    fn bad_fields_are_named() {
        for (body, text) in [
            ("[1", "the body is not a terminal: "),
            ("[]", "the body is not a terminal: "),
            (
                r#"{"cmd": []}"#,
                "the body is not a terminal: unknown field `cmd`",
            ),
            (
                r#"{"tty": "yes"}"#,
                "the body is not a terminal: invalid type",
            ),
            (
                r#"{"columns": 70000}"#,
                "the body is not a terminal: invalid value",
            ),
            (r#"{"command": []}"#, "command must not be empty"),
            (r#"{"command": [""]}"#, "command must not be empty"),
            (r#"{"columns": 0}"#, "columns and rows must be 1 to 1000"),
            (r#"{"rows": 1001}"#, "columns and rows must be 1 to 1000"),
            (
                r#"{"command": ["a\u0000"]}"#,
                "command must not contain a NUL byte",
            ),
            (
                r#"{"environment": {"A": "\u0000"}}"#,
                "environment must not contain",
            ),
            (
                r#"{"environment": {"A=": ""}}"#,
                "environment has the name \"A=\"",
            ),
            (
                r#"{"environment": {"": ""}}"#,
                "environment has the name \"\"",
            ),
        ] {
            assert!(error(body).starts_with(text), "{body}: {}", error(body));
        }
    }
}
