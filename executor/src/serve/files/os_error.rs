//! Errors of the operating system as Python prints them: clients and models know these texts.

use std::io;
use std::path::Path;

use serde_json::Value;

use crate::serve::python_repr::repr;

/// Formats an error: `[Errno 13] Permission denied: '/path'`.
pub(in crate::serve) fn describe(error: &io::Error, path: &Path) -> String {
    match error.raw_os_error() {
        Some(number) => format!("[Errno {number}] {}: {}", reason(error), quoted(path)),
        // The only error that the standard library finds before the system call.
        None if error.kind() == io::ErrorKind::InvalidInput => "embedded null byte".to_owned(),
        None => error.to_string(),
    }
}

/// Returns whether the error means that the path does not exist, as for Python's `exists`.
pub(in crate::serve) fn is_not_found(error: &io::Error) -> bool {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(errno) => [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].contains(&errno),
        None => error.kind() == io::ErrorKind::InvalidInput,
    }
}

/// Text of an error, without the number that the standard library appends.
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
    fn errors_are_formatted_as_by_python() {
        let denied = io::Error::from_raw_os_error(13);
        assert_eq!(
            describe(&denied, Path::new("/x")),
            "[Errno 13] Permission denied: '/x'"
        );
        let quoted = describe(&denied, Path::new("/it's"));
        assert!(quoted.ends_with(": \"/it's\""));
        let null = std::fs::metadata("/a\0b").unwrap_err();
        assert_eq!(describe(&null, Path::new("/a\0b")), "embedded null byte");
        assert!(is_not_found(&null));
        assert!(!is_not_found(&denied));
    }
}
