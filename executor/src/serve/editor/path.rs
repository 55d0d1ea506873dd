//! Which file is meant, and whether a command may be used on it (spec 6.4, first checks).

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use super::error::EditError;
use super::{CONVERTIBLE, MAX_SIZE};
use crate::serve::files::{FileError, describe, is_absence};

/// A path that a command may be used on, and what is there.
#[derive(Debug)]
pub(super) struct Target {
    given: String,
    path: PathBuf,
    found: Option<Metadata>,
}

impl Target {
    pub(super) fn check(command: &str, path: &str, working_dir: &Path) -> Result<Self, EditError> {
        let shown = tidy(path);
        let target = Self {
            given: path.to_owned(),
            path: PathBuf::from(&shown),
            found: None,
        };
        let refuse = |hint: String| {
            Err(EditError::Invalid {
                parameter: "path",
                value: shown.clone(),
                hint,
            })
        };
        if !shown.starts_with('/') {
            let suggestion = working_dir.join(&shown);
            let suggestion = if suggestion.exists() {
                let suggestion = tidy(&suggestion.to_string_lossy());
                format!(" Maybe you meant {suggestion}?")
            } else {
                String::new()
            };
            return refuse(format!(
                "The path should be an absolute path, starting with `/`.{suggestion}"
            ));
        }
        let target = target.look()?;
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

    fn look(mut self) -> Result<Self, EditError> {
        match fs::metadata(&self.path) {
            Ok(found) => self.found = Some(found),
            Err(error) if is_absence(&error) => {}
            Err(error) => return Err(self.failed("read", describe(&error, &self.path))),
        }
        Ok(self)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// As the client wrote it.
    pub(super) fn given(&self) -> &str {
        &self.given
    }

    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn is_directory(&self) -> bool {
        self.found.as_ref().is_some_and(Metadata::is_dir)
    }

    pub(super) fn is_file(&self) -> bool {
        self.found.as_ref().is_some_and(Metadata::is_file)
    }

    pub(super) fn is_convertible(&self) -> bool {
        let extension = self.extension().to_ascii_lowercase();
        CONVERTIBLE.contains(&extension.as_str())
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

    pub(super) fn invalid_file(&self, reason: &str) -> EditError {
        EditError::File {
            path: self.shown(),
            reason: reason.to_owned(),
        }
    }

    pub(super) fn unreadable(&self, error: &FileError) -> EditError {
        let error = match error {
            FileError::System { source, .. } => describe(source, &self.path),
            FileError::NotFound(path) => {
                format!("[Errno 2] No such file or directory: '{path}'")
            }
            other => other.to_string(),
        };
        self.failed("read", error)
    }

    pub(super) fn unwritable(&self, error: &impl ToString) -> EditError {
        self.failed("write to", error.to_string())
    }

    fn failed(&self, what: &'static str, error: String) -> EditError {
        EditError::System {
            error,
            what,
            path: self.shown(),
        }
    }
}

/// As Python's `Path` prints what it was given: no doubled slashes, no `.`, `..` kept.
pub(super) fn tidy(path: &str) -> String {
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
    fn paths_are_tidied_as_python_does() {
        for (path, tidied) in [
            ("/a//b/./c/", "/a/b/c"),
            ("//a", "//a"),
            ("///a", "/a"),
            ("/", "/"),
            ("", "."),
            ("./a/../b", "a/../b"),
        ] {
            assert_eq!(tidy(path), tidied);
        }
    }
}
