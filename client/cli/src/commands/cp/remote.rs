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
/// Exit codes of a shell for programs that it cannot run.
const NO_PROGRAM: [u8; 2] = [126, 127];

/// Returns the state of a path. `None` without `sh`, `tar` or terminals.
pub(super) async fn probe(sandbox: &Sandbox, path: &str) -> Result<Option<Existing>, Failure> {
    let session = match sandbox.exec(&program(PROBE, &[path])).await {
        Ok(session) => session,
        // A server without terminals, or a program that cannot be started.
        Err(Error::Unsupported(_) | Error::NotStarted(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    session.input().end().await?;
    let (code, output, errors) = finish(session).await?;
    match (code, output.trim()) {
        (0, "directory") => Ok(Some(Existing::Directory)),
        (0, "other") => Ok(Some(Existing::Other)),
        (0, "nothing") => Ok(Some(Existing::Nothing)),
        (0, "none") => Ok(None),
        (code, _) if NO_PROGRAM.contains(&code) => Ok(None),
        (code, _) => Err(failed("the check of the path", code, &errors)),
    }
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
