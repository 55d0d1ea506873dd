//! Why a sandbox ended, left where the kubelet takes it for the status of the container. Only this
//! program's own errors: what a command prints may hold secrets, and stays in the log.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use clap::error::{ContextKind, ContextValue};

/// Where Kubernetes looks (`terminationMessagePath`). It is there in every container, new and
/// writable for everybody, and nowhere else.
const FILE: &str = "/dev/termination-log";

/// Longest text that is left, in bytes.
const LONGEST: usize = 512;

/// Leaves a text for the status, in place of an earlier one.
pub(crate) fn leave(text: &str) {
    write(Path::new(FILE), text);
}

/// Leaves what is wrong with a command line, without values: some come from the environment, which is
/// secret.
pub fn leave_usage(error: &clap::Error) {
    leave(&usage(error));
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

/// An option or a placeholder; anything else stands where a value does.
fn name(text: &str) -> Option<&str> {
    let name = text.split('=').next()?;
    name.starts_with(['-', '<']).then_some(name)
}

fn write(file: &Path, text: &str) {
    let text = &text[..text.floor_char_boundary(LONGEST)];
    let opened = OpenOptions::new().write(true).truncate(true).open(file);
    // Outside a container there is no such file, and nobody to tell.
    let _ = opened.and_then(|mut file| file.write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_last_text_stands_alone_and_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("log");
        write(&file, "nobody reads this");
        assert!(!file.exists());
        std::fs::write(&file, "").unwrap();
        write(&file, &"\u{fc}".repeat(LONGEST));
        assert_eq!(std::fs::metadata(&file).unwrap().len(), LONGEST as u64);
        write(&file, "no shell");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "no shell");
    }

    #[test]
    fn a_wrong_command_line_is_named_without_values() {
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
