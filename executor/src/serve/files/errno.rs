//! Errors of the system as Python prints them: clients and models have learnt those texts.

use std::io;
use std::path::Path;

use serde_json::Value;

use crate::serve::python::repr;

/// `[Errno 13] Permission denied: '/path'`
pub(in crate::serve) fn describe(error: &io::Error, path: &Path) -> String {
    match error.raw_os_error() {
        Some(number) => format!("[Errno {number}] {}: {}", reason(error), quoted(path)),
        // The one mistake that is found before the system is asked.
        None if error.kind() == io::ErrorKind::InvalidInput => "embedded null byte".to_owned(),
        None => error.to_string(),
    }
}

/// Whether the error says that there is nothing at a path, as Python's `exists` sees it.
pub(in crate::serve) fn is_absence(error: &io::Error) -> bool {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(errno) => [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].contains(&errno),
        None => error.kind() == io::ErrorKind::InvalidInput,
    }
}

/// The system's text for an error, without the number that the standard library appends.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

fn quoted(path: &Path) -> String {
    repr(&Value::String(path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_look_like_pythons() {
        let denied = io::Error::from_raw_os_error(13);
        assert_eq!(
            describe(&denied, Path::new("/x")),
            "[Errno 13] Permission denied: '/x'"
        );
        let quoted = describe(&denied, Path::new("/it's"));
        assert!(quoted.ends_with(": \"/it's\""));
        let null = std::fs::metadata("/a\0b").unwrap_err();
        assert_eq!(describe(&null, Path::new("/a\0b")), "embedded null byte");
        assert!(is_absence(&null));
        assert!(!is_absence(&denied));
    }
}
