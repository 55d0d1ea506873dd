//! Writes the file of an archive in a thread, so that the next chunk is sealed at the same time.

use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::flusher::Flusher;

/// Chunks that wait for the thread. Beyond them, the dump waits for the file.
const MAX_WAITING: usize = 2;

/// Thread that writes one file. Without [`Output::finish`] it ends once it has written what waits.
pub(super) struct Output {
    chunks: SyncSender<Vec<u8>>,
    /// Buffers of chunks that are written. They are used again.
    written: Receiver<Vec<u8>>,
    thread: Option<JoinHandle<io::Result<Option<Flusher>>>>,
}

impl Output {
    /// Continues a file. With `flush` it is also flushed while it grows, as far as a thread can be had
    /// for that.
    pub(super) fn start(mut file: File, flush: bool) -> io::Result<Self> {
        let (chunks, received) = sync_channel::<Vec<u8>>(MAX_WAITING);
        let (emptied, written) = sync_channel(MAX_WAITING);
        let copy = file.try_clone()?;
        let thread = thread::Builder::new()
            .name("archive".to_owned())
            .spawn(move || {
                let flusher = flush.then(|| Flusher::start(move || copy.sync_data()));
                let mut flusher = flusher.and_then(Result::ok);
                for mut chunk in received {
                    file.write_all(&chunk)?;
                    if let Some(flusher) = &mut flusher {
                        flusher.add(chunk.len());
                    }
                    chunk.clear();
                    // One more than can be used again soon is freed.
                    let _ = emptied.try_send(chunk);
                }
                Ok(flusher)
            })?;
        Ok(Self {
            chunks,
            written,
            thread: Some(thread),
        })
    }

    /// Passes a chunk on, and leaves an empty buffer in its place. Waits while too many wait. An error
    /// may be that of an earlier chunk.
    pub(super) fn write(&mut self, chunk: &mut Vec<u8>) -> io::Result<()> {
        let empty = self.written.try_recv().unwrap_or_default();
        match self.chunks.send(mem::replace(chunk, empty)) {
            Ok(()) => Ok(()),
            // The thread ends early after an error only.
            Err(_) => Err(self.join().err().unwrap_or_else(ended)),
        }
    }

    /// Waits until all chunks are in the file, and flushes that have begun have ended.
    pub(super) fn finish(self) -> io::Result<()> {
        self.stop()?.map_or(Ok(()), Flusher::finish)
    }

    /// Waits until nothing more is written. A flush that has begun goes on.
    pub(super) fn stop(mut self) -> io::Result<Option<Flusher>> {
        let (closed, _) = sync_channel(0);
        self.chunks = closed;
        self.join()
    }

    fn join(&mut self) -> io::Result<Option<Flusher>> {
        let thread = self.thread.take().ok_or_else(ended)?;
        thread.join().map_err(|_| ended())?
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that writes the archive has ended")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn chunks_are_in_the_file_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut output = Output::start(File::create(&path).unwrap(), false).unwrap();
        let mut buffer = Vec::new();
        for number in 0..100_u8 {
            buffer.extend_from_slice(&[number; 1000]);
            output.write(&mut buffer).unwrap();
            assert!(buffer.is_empty());
        }
        output.finish().unwrap();
        let expected: Vec<u8> = (0..100).flat_map(|number| [number; 1000]).collect();
        assert_eq!(fs::read(path).unwrap(), expected);
    }

    #[test]
    fn error_of_the_file_is_that_of_a_later_write_or_of_the_end() {
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut output = Output::start(full(), false).unwrap();
        let mut write = || output.write(&mut vec![0]);
        let error = (0..10).find_map(|_| write().err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(write().is_err());

        let mut output = Output::start(full(), false).unwrap();
        output.write(&mut vec![0]).unwrap();
        let error = output.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
