//! Uploads and downloads (spec 2.5, 2.6), as streams: a thread with the sandbox user's rights
//! reads or writes files, a bounded channel connects it with the client.

mod archive;
mod stream;
mod time;
mod unpack;
mod upload;

use std::io;
use std::path::{Path, PathBuf};

pub(super) use self::archive::send;
pub(super) use self::stream::{Download, Received, Sending, channel, receiving};
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use self::unpack::properties;
pub(super) use self::upload::{Upload, store};
use super::files::describe;

/// Answered with status 500 as they are, as in the original.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransferError {
    #[error("400: Destination must be an absolute path")]
    RelativeDestination,
    #[error("400: Recursive uploads must be zip files")]
    NoZipName,
    #[error("400: Path must be an absolute path")]
    RelativePath,
    #[error("404: File not found")]
    Missing,
    #[error("{} is not a zip file", .0.display())]
    NoZip(PathBuf),
    #[error("{name}: {reason}", name = .path.display())]
    Archive { path: PathBuf, reason: String },
    #[error("{}", describe(source, path))]
    System {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the upload broke off")]
    Broken,
    #[error("cannot act for the sandbox user: {0}")]
    Identity(#[source] io::Error),
}

impl TransferError {
    fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| {
            if stream::is_broken(&source) {
                return Self::Broken;
            }
            Self::System {
                path: path.to_path_buf(),
                source,
            }
        }
    }
}
