//! Uploads and downloads (`docs/specs/executor.md`, sections 2.5 and 2.6) as streams.
//!
//! A thread with the credentials of the sandbox user reads or writes files. A bounded channel
//! connects it with the client.

mod archive;
mod error;
pub(crate) mod stream;
mod unpack;
mod upload;
mod zip_time;

pub(super) use self::archive::send;
pub(super) use self::error::TransferError;
pub(super) use self::stream::{UploadReader, UploadSender, channel, upload_channel};
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use self::unpack::properties;
pub(super) use self::upload::{Upload, store};
