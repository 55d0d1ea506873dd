//! Bytes between blocking archive code and asynchronous sessions, over a bounded queue.

use std::io::{self, Read, Write};

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;

/// Chunks in flight.
pub(crate) const QUEUE: usize = 8;
const CHUNK_BYTES: usize = 64 << 10;

/// Sends what is written. Fails when the receiver is gone.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    sender: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
}

/// Reads what is received, to the end of the senders.
#[derive(Debug)]
pub(crate) struct ChunkReader {
    receiver: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl ChunkWriter {
    pub(crate) fn new(sender: mpsc::Sender<Bytes>) -> Self {
        Self {
            sender,
            buffer: Vec::with_capacity(CHUNK_BYTES),
        }
    }
}

impl Write for ChunkWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let length = data.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&data[..length]);
        if self.buffer.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK_BYTES));
        let sent = self.sender.blocking_send(chunk.into());
        sent.map_err(|_| io::Error::other("the copy has ended"))
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
            let mut writer = ChunkWriter::new(sender);
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
        let mut writer = ChunkWriter::new(sender);
        assert!(writer.write_all(&vec![0; CHUNK_BYTES]).is_err());
    }
}
