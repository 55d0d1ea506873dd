//! Termination message of the container. It holds only errors of this program, because output of
//! a command may hold secrets (`docs/decisions/073-termination-messages.md`).

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use clap::error::{ContextKind, ContextValue};

/// Default `terminationMessagePath` of Kubernetes. The file exists and is writable in containers.
const TERMINATION_LOG: &str = "/dev/termination-log";

const MAX_MESSAGE_BYTES: usize = 512;

pub(crate) fn write_message(text: &str) {
    write(Path::new(TERMINATION_LOG), text);
}

/// Writes a command line error as the termination message. Values are left out, because some
/// come from the environment, which is secret.
pub(crate) fn write_usage_error(error: &clap::Error) {
    write_message(&usage(error));
}

fn usage(error: &clap::Error) -> String {
    let what = error.kind().as_str().unwrap_or("the command line is wrong");
    let about = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => std::slice::from_ref(name),
        Some(ContextValue::Strings(names)) => names,
        _ => &[],
    };
    let names: Vec<_> = about.iter().filter_map(|text| name(text)).collect();
    if names.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {}", names.join(", "))
    }
}

/// Name of an option or a placeholder; `None` for a value.
fn name(text: &str) -> Option<&str> {
    let name = text.split('=').next()?;
    name.starts_with(['-', '<']).then_some(name)
}

fn write(file: &Path, text: &str) {
    let text = &text[..text.floor_char_boundary(MAX_MESSAGE_BYTES)];
    let opened = OpenOptions::new().write(true).truncate(true).open(file);
    // Outside a container the file does not exist.
    let _ = opened.and_then(|mut file| file.write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn message_replaces_earlier_one_and_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("log");
        write(&file, "outside a container");
        assert!(!file.exists());
        std::fs::write(&file, "").unwrap();
        write(&file, &"\u{fc}".repeat(MAX_MESSAGE_BYTES));
        assert_eq!(
            std::fs::metadata(&file).unwrap().len(),
            MAX_MESSAGE_BYTES as u64
        );
        write(&file, "no shell");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "no shell");
    }

    #[test]
    fn usage_error_names_options_without_values() {
        let said = |line: &str| usage(&Cli::try_parse_from(line.split(' ')).unwrap_err());
        let wrong = said("x serve 60000 --user-id hunter2");
        assert!(wrong.contains("--user-id"), "{wrong}");
        assert!(!wrong.contains("hunter2"), "{wrong}");
        let unknown = said("x serve 60000 --colour");
        assert!(unknown.contains("--colour"), "{unknown}");
        let missing = said("x serve");
        assert!(missing.contains("<PORT>"), "{missing}");
        for line in [
            "x serve 60000 hunter2",
            "x hunter2",
            "x serve 60000 --colour=hunter2",
        ] {
            let said = said(line);
            assert!(!said.is_empty() && !said.contains("hunter2"), "{said}");
        }
    }
}
