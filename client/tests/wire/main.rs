//! The client against scripted servers: repeated calls, sandboxes that wake, and streams that go on after
//! their connection broke.

mod events;
mod fixture;
mod recovery;
mod terminals;
