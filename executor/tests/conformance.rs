//! What the specification of the action execution server says about running commands and about
//! its answers, case by case: each names its section. Every case runs as root and as the sandbox's
//! user, uid 1000. What it says about files is in `editor`, `files` and `transfer`.

mod count;
mod grammar;
mod hostile;
mod keys;
mod messages;
mod scenarios;
mod script;
mod sequences;
mod server;
mod set_up;
mod simple;
mod wire;
pub(crate) mod world;
