//! What the specification of the action execution server says about running commands, case by
//! case: each names its section. Every case runs as root and as the sandbox's user, uid 1000.

mod keys;
mod messages;
mod scenarios;
mod script;
mod server;
mod set_up;
mod simple;
mod world;
