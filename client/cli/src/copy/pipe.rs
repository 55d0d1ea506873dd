//! Bytes between blocking archive code and asynchronous sessions, over a bounded queue.

use std::io::{self, BufWriter, Read, Write};

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;

/// Chunks in flight.
pub(crate) const QUEUE: usize = 8;
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// Sends each piece that is written. Fails when the receiver is gone.
#[derive(Debug)]
struct ChunkSender(mpsc::Sender<Bytes>);

/// Reads what is received, to the end of the senders.
#[derive(Debug)]
pub(crate) struct ChunkReader {
    receiver: mpsc::Receiver<Bytes>,
    current: Bytes,
}

/// Writer that sends what is written in chunks, the rest when it is flushed.
pub(crate) fn writer(sender: mpsc::Sender<Bytes>) -> impl Write {
    BufWriter::with_capacity(CHUNK_BYTES, ChunkSender(sender))
}

impl Write for ChunkSender {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(data));
        // Not a broken pipe, which would mean that of the standard output.
        sent.map_err(|_| io::Error::other("the copy has ended"))?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ChunkReader {
    pub(crate) fn new(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self {
            receiver,
            current: Bytes::new(),
        }
    }
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.current = chunk,
                None => return Ok(0),
            }
        }
        let length = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order() {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let sent = data.clone();
        let writer = std::thread::spawn(move || {
            let mut writer = writer(sender);
            writer.write_all(&sent).unwrap();
            writer.flush().unwrap();
        });
        let mut arrived = Vec::new();
        ChunkReader::new(receiver)
            .read_to_end(&mut arrived)
            .unwrap();
        writer.join().unwrap();
        assert_eq!(arrived, data);
    }

    #[test]
    fn writer_fails_when_the_reader_is_gone() {
        let (sender, receiver) = mpsc::channel(QUEUE);
        drop(receiver);
        assert!(writer(sender).write_all(&vec![0; CHUNK_BYTES]).is_err());
    }
}
