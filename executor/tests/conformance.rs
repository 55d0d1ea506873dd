//! Cases of `docs/specs/executor.md` about commands and responses; each names its section. Every
//! case runs as root and as the sandbox user, uid 1000. Cases about files are in `editor`, `files`
//! and `transfer`.

mod case;
mod coverage;
pub(crate) mod environment;
mod hostile_commands;
mod keys;
mod messages;
mod multiple_commands;
mod posix_shell;
mod sandbox_setup;
mod scenarios;
mod sequences;
mod server;
mod single_commands;
mod wire;
