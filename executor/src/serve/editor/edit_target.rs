//! The file of a command, and the checks of its path (`docs/specs/executor.md`, section 6.4).

use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use super::EditError;
use crate::serve::files::{self, FileError, TextDocument, describe, is_not_found};

/// Largest file that the editor opens, in bytes.
const MAX_SIZE: u64 = 10 << 20;
/// Extensions of documents that the Python server converts to Markdown.
const CONVERTIBLE_EXTENSIONS: [&str; 8] =
    ["docx", "xlsx", "pptx", "pdf", "mp3", "wav", "m4a", "flac"];

/// A path that a command may be used on, and the metadata of its file.
#[derive(Debug)]
pub(super) struct EditTarget {
    /// The path of the action.
    pub(super) given: String,
    pub(super) path: PathBuf,
    found: Option<Metadata>,
}

impl EditTarget {
    pub(super) fn check(command: &str, path: &str, working_dir: &Path) -> Result<Self, EditError> {
        let shown = normalize(path);
        let refuse = |hint: String| {
            Err(EditError::Invalid {
                parameter: "path",
                value: shown.clone(),
                hint,
            })
        };
        if !shown.starts_with('/') {
            let mut hint = "The path should be an absolute path, starting with `/`.".to_owned();
            let suggestion = working_dir.join(&shown);
            if suggestion.exists() {
                let suggestion = normalize(&suggestion.to_string_lossy());
                let _ = write!(hint, " Maybe you meant {suggestion}?");
            }
            return refuse(hint);
        }
        let mut target = Self {
            given: path.to_owned(),
            path: PathBuf::from(&shown),
            found: None,
        };
        match fs::metadata(&target.path) {
            Ok(found) => target.found = Some(found),
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(target.failed("read", describe(&error, &target.path))),
        }
        if command == "create" && target.found.is_some() {
            return refuse(format!(
                "File already exists at: {shown}. Cannot overwrite files using command `create`."
            ));
        }
        if command != "create" && target.found.is_none() {
            return refuse(format!(
                "The path {shown} does not exist. Please provide a valid path."
            ));
        }
        if command != "view" && target.is_directory() {
            return refuse(format!(
                "The path {shown} is a directory and only the `view` command can be used on \
                 directories."
            ));
        }
        if command != "view" && target.is_convertible() {
            return refuse(format!(
                "The path {shown} points to a binary file (.{extension}) and only the `view` \
                 command can be used on supported binary files.",
                extension = target.extension()
            ));
        }
        Ok(target)
    }

    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn is_directory(&self) -> bool {
        self.found.as_ref().is_some_and(Metadata::is_dir)
    }

    pub(super) fn load(&self) -> Result<(Vec<u8>, TextDocument), EditError> {
        let content = self.bytes()?;
        let document = TextDocument::decode(&content);
        Ok((content, document))
    }

    pub(super) fn bytes(&self) -> Result<Vec<u8>, EditError> {
        if self.found.as_ref().is_some_and(Metadata::is_file) {
            self.check_size()?;
            if !self.is_convertible() && files::is_binary(&self.path) {
                return Err(self.invalid_file(
                    "File appears to be binary and this file type cannot be read or edited by \
                     this tool.",
                ));
            }
        }
        files::bytes(&self.path).map_err(|error| self.unreadable(&error))
    }

    pub(super) fn is_convertible(&self) -> bool {
        let extension = self.extension().to_ascii_lowercase();
        CONVERTIBLE_EXTENSIONS.contains(&extension.as_str())
    }

    fn extension(&self) -> String {
        let extension = self.path.extension().unwrap_or_default();
        extension.to_string_lossy().into_owned()
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    pub(super) fn check_size(&self) -> Result<(), EditError> {
        let size = self.found.as_ref().map_or(0, Metadata::len);
        if size <= MAX_SIZE {
            return Ok(());
        }
        let megabytes = size as f64 / f64::from(1 << 20);
        Err(self.invalid_file(&format!(
            "File is too large ({megabytes:.1}MB). Maximum allowed size is 10MB."
        )))
    }

    fn invalid_file(&self, reason: &str) -> EditError {
        EditError::File {
            path: self.shown(),
            reason: reason.to_owned(),
        }
    }

    fn unreadable(&self, error: &FileError) -> EditError {
        let error = match error {
            FileError::System { source, .. } => describe(source, &self.path),
            FileError::NotFound(path) => format!("[Errno 2] No such file or directory: '{path}'"),
            other => other.to_string(),
        };
        self.failed("read", error)
    }

    pub(super) fn unwritable(&self, error: &impl ToString) -> EditError {
        self.failed("write to", error.to_string())
    }

    fn failed(&self, operation: &'static str, error: String) -> EditError {
        EditError::System {
            error,
            operation,
            path: self.shown(),
        }
    }
}

/// Formats a path as Python's `Path` does: without doubled slashes and `.`, with `..`.
pub(super) fn normalize(path: &str) -> String {
    let parts = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".");
    let joined = parts.collect::<Vec<_>>().join("/");
    let root = match path {
        _ if path.starts_with("//") && !path.starts_with("///") => "//",
        _ if path.starts_with('/') => "/",
        _ if joined.is_empty() => ".",
        _ => "",
    };
    format!("{root}{joined}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized_as_by_python() {
        for (path, normalized) in [
            ("/a//b/./c/", "/a/b/c"),
            ("//a", "//a"),
            ("///a", "/a"),
            ("/", "/"),
            ("", "."),
            ("./a/../b", "a/../b"),
        ] {
            assert_eq!(normalize(path), normalized);
        }
    }
}
