//! The process node with real processes.

mod harness;
mod identity;
mod isolation;
mod kept_roots;
mod lifecycle;
mod limits;
mod restart;
mod storage;
