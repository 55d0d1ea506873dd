//! Receives the images of a dump and encrypts them into an archive.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;

use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use super::{ImageTransfer, MAX_OPEN_IMAGES, prepare_pipe};
use crate::archive::MAX_CHUNK_BYTES;
use crate::archive::writer::ArchiveWriter;
use crate::error::FailureReason;

pub(crate) struct ImageCapture {
    connection: Connection,
    archive: ArchiveWriter,
    open: Vec<IncomingImage>,
}

struct IncomingImage {
    pipe: File,
    number: usize,
    /// Grows with the image up to one chunk: most images are small.
    buffer: Vec<u8>,
}

impl ImageCapture {
    pub(crate) fn new(listener: UnixListener, peer: i32, archive: ArchiveWriter) -> Self {
        Self {
            connection: Connection::new(listener, peer),
            archive,
            open: Vec::new(),
        }
    }

    pub(crate) fn archive(&mut self) -> &mut ArchiveWriter {
        &mut self.archive
    }

    pub(crate) fn into_archive(self) -> ArchiveWriter {
        self.archive
    }

    fn open_image(&mut self, name: String) -> Result<(), FailureReason> {
        if self.open.len() >= MAX_OPEN_IMAGES {
            return Err(FailureReason::Protocol);
        }
        let number = self.archive.add_image(name)?;
        let pipe = prepare_pipe(self.connection.receive_pipe()?)?;
        self.open.push(IncomingImage {
            pipe,
            number,
            buffer: Vec::new(),
        });
        Ok(())
    }
}

impl IncomingImage {
    /// Reads what the pipe has; true at the end of the image.
    fn receive(&mut self, archive: &mut ArchiveWriter) -> Result<bool, FailureReason> {
        loop {
            let room = MAX_CHUNK_BYTES - self.buffer.len();
            let limit = u64::try_from(room).unwrap_or(0);
            // Bytes before an error stay in the buffer.
            match (&self.pipe).take(limit).read_to_end(&mut self.buffer) {
                Ok(_) if self.buffer.len() == MAX_CHUNK_BYTES => {
                    archive.append(self.number, &mut self.buffer)?;
                }
                Ok(_) => {
                    if !self.buffer.is_empty() {
                        archive.append(self.number, &mut self.buffer)?;
                    }
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl ImageTransfer for ImageCapture {
    fn interests(&self) -> Vec<PollFd<'_>> {
        let pipes = self.open.iter().map(|image| image.pipe.as_fd());
        let all = pipes.chain(self.connection.descriptor());
        all.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect()
    }

    fn handle(&mut self, ready: &[PollFlags]) -> Result<(), FailureReason> {
        let (pipes, connection) = ready.split_at(self.open.len().min(ready.len()));
        let mut ended = Vec::new();
        for (place, (image, ready)) in self.open.iter_mut().zip(pipes).enumerate() {
            if !ready.is_empty() && image.receive(&mut self.archive)? {
                ended.push(place);
            }
        }
        for place in ended.into_iter().rev() {
            self.open.swap_remove(place);
        }
        if connection.first().is_some_and(|ready| !ready.is_empty())
            && let Some(name) = self.connection.receive()?
        {
            self.open_image(name)?;
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    fn abort(&mut self) {
        self.open.clear();
        self.connection = Connection::Closed;
    }
}
