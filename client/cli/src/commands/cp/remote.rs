//! Programs of a copy in the sandbox.

use bytes::Bytes;
use client::{Error, ExitStatus, NewTerminal, Sandbox, Session, TerminalEvent};

use crate::copy::location::Existing;
use crate::failure::{Failure, exit_code};

/// Bytes of output and of error output that are kept.
const MAX_KEPT_BYTES: usize = 16 << 10;
/// Says what a path is, if there is a `tar`.
const PROBE: &str = r#"command -v tar >/dev/null 2>&1 || { echo none; exit 0; }
if [ -d "$1" ]; then echo directory; elif [ -e "$1" ] || [ -L "$1" ]; then echo other; else echo nothing; fi"#;
/// Prints the bytes of a file or tree, or an empty line if `du` cannot tell them within two
/// seconds.
const SIZE: &str = r#"size=$(timeout 2 du -sb -- "$1" 2>/dev/null); echo "${size%%[!0-9]*}""#;
/// Exit codes of a shell for programs that it cannot run.
const NO_PROGRAM: [u8; 2] = [126, 127];

/// Returns the state of a path. `None` without `sh`, `tar` or terminals.
pub(super) async fn probe(sandbox: &Sandbox, path: &str) -> Result<Option<Existing>, Failure> {
    Ok(run_probe(sandbox, PROBE, path).await?.0)
}

/// As [`probe`], with the bytes of a file or tree if the sandbox can tell them.
pub(super) async fn probe_source(
    sandbox: &Sandbox,
    path: &str,
) -> Result<(Option<Existing>, Option<u64>), Failure> {
    run_probe(sandbox, &format!("{PROBE}\n{SIZE}"), path).await
}

async fn run_probe(
    sandbox: &Sandbox,
    script: &str,
    path: &str,
) -> Result<(Option<Existing>, Option<u64>), Failure> {
    let session = match sandbox.exec(&program(script, &[path])).await {
        Ok(session) => session,
        // A server without terminals, or a program that cannot be started.
        Err(Error::Unsupported(_) | Error::NotStarted(_)) => return Ok((None, None)),
        Err(error) => return Err(error.into()),
    };
    session.input().end().await?;
    let (code, output, errors) = finish(session).await?;
    let (word, size) = probed(&output);
    let existing = match (code, word) {
        (0, "directory") => Some(Existing::Directory),
        (0, "other") => Some(Existing::Other),
        (0, "nothing") => Some(Existing::Nothing),
        (0, "none") => None,
        (code, _) if NO_PROGRAM.contains(&code) => None,
        (code, _) => return Err(failed("the check of the path", code, &errors)),
    };
    Ok((existing, size))
}

/// Splits the output of a probe into its word and the size, which is not trusted.
fn probed(output: &str) -> (&str, Option<u64>) {
    let output = output.trim();
    let (word, size) = output.split_once('\n').unwrap_or((output, ""));
    let size = size.parse::<u64>().ok();
    (word.trim_end(), size.filter(|size| *size > 0))
}

/// A script with arguments.
pub(super) fn program(script: &str, arguments: &[&str]) -> NewTerminal {
    NewTerminal::piped(
        ["sh", "-c", script, "copy"]
            .iter()
            .chain(arguments)
            .copied(),
    )
}

/// Waits for the end of a program; exit code, output and error output.
async fn finish(mut session: Session) -> Result<(u8, String, String), Failure> {
    let (mut output, mut errors) = (Kept::default(), Kept::default());
    let status = loop {
        match session.next().await? {
            Some(TerminalEvent::Output(data)) => output.add(&data),
            Some(TerminalEvent::ErrorOutput(data)) => errors.add(&data),
            Some(TerminalEvent::Exit(status)) => break status,
            Some(_) => {}
            None => return Err(Failure::Local("the program ended without a status".into())),
        }
    };
    let _ = session.close().await;
    Ok((exit_code(&status), output.text(), errors.text()))
}

pub(super) fn failed(what: &str, code: u8, errors: &str) -> Failure {
    Failure::Local(format!(
        "{what} failed in the sandbox with exit code {code}: {}",
        errors.trim_end()
    ))
}

/// Fails unless a program succeeded.
pub(super) fn check(status: &ExitStatus, errors: &Kept) -> Result<(), Failure> {
    match exit_code(status) {
        0 => Ok(()),
        code => Err(failed("tar", code, &errors.text())),
    }
}

/// The beginning of an output.
#[derive(Debug, Default)]
pub(super) struct Kept(Vec<u8>);

impl Kept {
    pub(super) fn add(&mut self, data: &Bytes) {
        let room = MAX_KEPT_BYTES - self.0.len();
        self.0.extend_from_slice(&data[..data.len().min(room)]);
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn size_of_a_probe_is_positive_or_unknown() {
        for (output, expected) in [
            ("other\n5\n", ("other", Some(5))),
            ("directory\r\n7\r\n", ("directory", Some(7))),
            ("directory\n\n", ("directory", None)),
            ("other\n0\n", ("other", None)),
            ("other\n99999999999999999999\n", ("other", None)),
            ("other\n-1\n", ("other", None)),
            ("none\n", ("none", None)),
            ("", ("", None)),
        ] {
            assert_eq!(probed(output), expected, "{output:?}");
        }
    }

    #[test]
    fn probe_of_a_source_measures_files_and_trees() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("-new\n9 line");
        std::fs::write(&file, "five\n").unwrap();
        let script = format!("{PROBE}\n{SIZE}");
        let probe = |path: &std::path::Path| {
            let mut shell = Command::new("sh");
            let output = shell.args(["-c", &script, "copy"]).arg(path).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        assert_eq!(probed(&probe(&file)), ("other", Some(5)));
        let tree = probe(folder.path());
        assert!(matches!(probed(&tree), ("directory", Some(5..))), "{tree}");
        assert_eq!(
            probed(&probe(&folder.path().join("none"))),
            ("nothing", None)
        );
    }
}
