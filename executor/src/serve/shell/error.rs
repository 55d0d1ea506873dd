//! Reasons for which there is no shell.

use std::io;

#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum ShellError {
    /// Files, the editor and transfers work without a shell.
    #[error("there is no shell in this image: neither bash nor sh was found")]
    Missing,
    #[error("cannot start the shell in this directory")]
    Directory(#[source] io::Error),
    #[error("cannot prepare the shell's directory")]
    Scratch(#[source] io::Error),
    #[error("cannot open a terminal")]
    Terminal(#[source] pty_process::Error),
    #[error("cannot start the shell")]
    Spawn(#[source] pty_process::Error),
    #[error("the shell did not come up")]
    Start,
    #[error("cannot reach the shell")]
    Type(#[source] io::Error),
}
