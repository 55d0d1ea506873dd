//! Image files on their way between CRIU and an archive.
//!
//! CRIU connects to a unix socket once. For each image it sends a message (4 bytes of length,
//! then the name as a field) and one end of a pipe. In a restore the answer, whether the archive
//! has the image, comes before the pipe.

pub(super) mod capture;
mod connection;
pub(super) mod serve;

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::fcntl_setpipe_size;

use crate::error::FailureReason;

/// Bytes that a pipe holds. The default of 64 KiB needs 16 times as many wake-ups.
const PIPE_BYTES: usize = 1 << 20;
/// Images that CRIU has open at one time, a bound against a broken sender. It has about 40.
const MAX_OPEN_IMAGES: usize = 1024;

/// One direction of the transfer, driven by the poll loop of a session.
pub(super) trait ImageTransfer {
    /// Descriptors to wait for.
    fn interests(&self) -> Vec<PollFd<'_>>;

    /// Handles what became ready, in the order of [`ImageTransfer::interests`].
    fn handle(&mut self, ready: &[PollFlags]) -> Result<(), FailureReason>;

    /// Returns whether all images that CRIU opened have ended.
    fn is_idle(&self) -> bool;

    /// Closes all pipes, so that CRIU fails and undoes its work.
    fn abort(&mut self);
}

fn prepare_pipe(pipe: OwnedFd) -> Result<File, FailureReason> {
    fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
    // Beyond the user's limit of pipe memory the default stays, which is only slower.
    let _ = fcntl_setpipe_size(&pipe, PIPE_BYTES);
    Ok(pipe.into())
}
