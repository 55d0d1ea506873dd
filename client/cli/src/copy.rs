//! Copies of files and trees as tar streams.

mod header_limit;
pub(crate) mod location;
pub(crate) mod pack;
pub(crate) mod pipe;
mod tree;
pub(crate) mod unpack;
