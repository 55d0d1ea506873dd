//! The embedded API in memory, under paused time.

mod crud;
mod deletion;
mod events;
mod fixtures;
mod http;
mod persistence;
mod sandboxes;
mod watches;
