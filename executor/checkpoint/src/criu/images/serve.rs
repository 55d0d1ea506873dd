//! Sends the images of an archive to a restore.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::mem;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;

use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use super::{ImageTransfer, MAX_OPEN_IMAGES, prepare_pipe};
use crate::archive::reader::ArchiveReader;
use crate::error::FailureReason;

pub(crate) struct ImageServer {
    connection: Connection,
    archive: ArchiveReader,
    open: Vec<OutgoingImage>,
}

struct OutgoingImage {
    pipe: File,
    /// Chunks that are still to be read, the next one last.
    chunks: Vec<u32>,
    buffer: Vec<u8>,
    sent: usize,
    /// The chunk after that in the buffer.
    next: Vec<u8>,
    has_next: bool,
}

impl ImageServer {
    pub(crate) fn new(listener: UnixListener, peer: i32, archive: ArchiveReader) -> Self {
        Self {
            connection: Connection::new(listener, peer),
            archive,
            open: Vec::new(),
        }
    }

    fn open_image(&mut self, name: &str) -> Result<(), FailureReason> {
        let Some(chunks) = self.archive.image(name) else {
            return self.connection.answer(false);
        };
        if self.open.len() >= MAX_OPEN_IMAGES {
            return Err(FailureReason::Protocol);
        }
        let chunks = chunks.iter().rev().copied().collect();
        self.connection.answer(true)?;
        let pipe = prepare_pipe(self.connection.receive_pipe()?)?;
        self.open.push(OutgoingImage {
            pipe,
            chunks,
            buffer: Vec::new(),
            sent: 0,
            next: Vec::new(),
            has_next: false,
        });
        Ok(())
    }
}

impl OutgoingImage {
    /// Writes what the pipe takes; true at the end of the image, or if CRIU wants no more of it.
    fn send(&mut self, archive: &ArchiveReader) -> Result<bool, FailureReason> {
        loop {
            if self.sent == self.buffer.len() {
                self.read_ahead(archive)?;
                if !self.has_next {
                    return Ok(true);
                }
                mem::swap(&mut self.buffer, &mut self.next);
                self.has_next = false;
                self.sent = 0;
            }
            match self.pipe.write(&self.buffer[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // CRIU empties the pipe meanwhile.
                    self.read_ahead(archive)?;
                    return Ok(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn read_ahead(&mut self, archive: &ArchiveReader) -> Result<(), FailureReason> {
        if !self.has_next
            && let Some(chunk) = self.chunks.pop()
        {
            archive.read_chunk(chunk, &mut self.next)?;
            self.has_next = true;
        }
        Ok(())
    }
}

impl ImageTransfer for ImageServer {
    fn interests(&self) -> Vec<PollFd<'_>> {
        let pipes = self.open.iter().map(|image| {
            let pipe = image.pipe.as_fd();
            PollFd::from_borrowed_fd(pipe, PollFlags::OUT)
        });
        let requests = self
            .connection
            .descriptor()
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        pipes.chain(requests).collect()
    }

    fn handle(&mut self, ready: &[PollFlags]) -> Result<(), FailureReason> {
        let (pipes, connection) = ready.split_at(self.open.len().min(ready.len()));
        let mut ended = Vec::new();
        for (place, (image, ready)) in self.open.iter_mut().zip(pipes).enumerate() {
            if !ready.is_empty() && image.send(&self.archive)? {
                ended.push(place);
            }
        }
        for place in ended.into_iter().rev() {
            self.open.swap_remove(place);
        }
        if connection.first().is_some_and(|ready| !ready.is_empty())
            && let Some(name) = self.connection.receive()?
        {
            self.open_image(&name)?;
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
