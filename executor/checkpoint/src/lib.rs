//! Saves a tree of processes with its memory into one encrypted file and restores it, in the same
//! container or in another one with the same files.
//!
//! CRIU does the work as a program of its own, started once per dump or restore and driven by its
//! RPC. Image files pass through pipes and never lie on a disk as plain text. All functions block:
//! callers run them on a thread of their own.

mod archive;
mod criu;
mod deadline;
mod descriptors;
mod error;
mod options;
mod pids;
mod process_tree;

pub use archive::key::ArchiveKey;
pub use archive::manifest::Manifest;
pub use archive::reader::read_manifest;
pub use criu::Criu;
pub use descriptors::{OutsidePipe, PipeDirection};
pub use error::{CheckpointError, FailureReason};
pub use options::{Approval, DumpOptions, DumpReport, Limits, RestoreOptions, Restored};
pub use pids::reserve_pids;
