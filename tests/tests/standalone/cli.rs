//! The command `sandbox` as a process of its own, with the environment of `. .state/env`.

mod commands;
mod copies;
mod ends;
mod examples;
mod first_minutes;
mod logs;
mod options;
mod ports;
mod progress;
mod scripted;
mod states;
mod terminals;
mod usage;

use std::process::{Command, Output, Stdio};

use tests::binaries::binary;

use crate::fixture::{Fixture, fixture_with};

/// A running standalone for calls of the command.
struct Cli {
    fixture: Fixture,
}

impl Cli {
    /// `None` where standalone cannot run.
    fn new() -> Option<Self> {
        let fixture = fixture_with(&[])?;
        Some(Self { fixture })
    }

    /// As [`Cli::new`], with a sandbox of this name.
    fn with_sandbox(name: &str) -> Option<Self> {
        let cli = Self::new()?;
        assert_eq!(
            cli.succeeds(&["run", "--name", name, "host"]),
            format!("{name}\n")
        );
        Some(cli)
    }

    fn command(&self, args: &[&str]) -> Command {
        let program = binary("sandbox");
        let mut command = self.fixture.standalone.command(program.to_str().unwrap());
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Output of a call that must succeed.
    fn succeeds(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{args:?}: {}\n{errors}",
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a line of bash that calls `sandbox`; its output and its errors.
    fn shell(&self, line: &str) -> (String, String) {
        let program = binary("sandbox");
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", program.parent().unwrap().display());
        let mut command = self.fixture.standalone.command("bash");
        let command = command.args(["-uc", line]).env("PATH", path);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    }

    /// Error text of a call that the tool cannot carry out.
    fn fails(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}
