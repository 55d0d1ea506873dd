//! One budget for the memory of client connections and request heads. Clients take it before they
//! are authenticated, so the budget, and not the number of clients, bounds what they can take.

use std::sync::Arc;

use http::{Request, Version};
use http_body::Body as HttpBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Charge of a connection: its task, buffers, and the first part of a head.
pub(super) const CONNECTION_BYTES: usize = 16 * 1024;
/// Charge of TLS on a connection, from the start: an unfinished handshake message or the buffers of
/// records in both directions, and the keys.
pub(super) const TLS_BYTES: usize = 64 * 1024;
/// Charge of an HTTP/2 connection: an unfinished header block, frames, and the state of its streams.
pub(super) const HTTP2_CONNECTION_BYTES: usize = 256 * 1024;
/// Charge of a request until the end of its response.
pub(super) const REQUEST_BYTES: usize = 4 * 1024;
/// Charge of a header field besides its text. Fields of HTTP/2 can take one byte on the wire. The
/// request and the copy that is sent take an entry each.
const FIELD_BYTES: usize = 256;

/// Free bytes of the budget; clones share it.
#[derive(Debug, Clone)]
pub(super) struct ClientMemory {
    free: Arc<Semaphore>,
    total: usize,
}

#[derive(Debug)]
pub(super) struct MemoryPermit(OwnedSemaphorePermit);

impl ClientMemory {
    pub(super) fn new(total: usize) -> Self {
        let free = Arc::new(Semaphore::new(total));
        Self { free, total }
    }

    /// Takes a part of the budget; `None` if too little is left.
    pub(super) fn acquire(&self, bytes: usize) -> Option<MemoryPermit> {
        take(&self.free, bytes).map(MemoryPermit)
    }

    pub(super) fn used(&self) -> usize {
        self.total - self.free.available_permits()
    }
}

impl MemoryPermit {
    /// Takes more, up to `bytes`; false if too little is left.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.0.num_permits());
        let taken = take(self.0.semaphore(), more);
        taken.map(|more| self.0.merge(more)).is_some()
    }

    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let less = self.0.num_permits().saturating_sub(bytes);
        drop(self.0.split(less));
    }
}

fn take(free: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let bytes = u32::try_from(bytes).ok()?;
    free.clone().try_acquire_many_owned(bytes).ok()
}

/// Charge of a request until its response begins.
pub(super) fn request_bytes<B: HttpBody>(request: &Request<B>, stream_window: usize) -> usize {
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| FIELD_BYTES + name.as_str().len() + value.len());
    let target = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    REQUEST_BYTES + target + fields.sum::<usize>() + body_bytes(request, stream_window)
}

/// Part of the charge that stays until the end of the response. The body of an HTTP/2 request can be
/// received up to the stream window before it is read, and a sandbox may answer before it reads it.
pub(super) fn body_bytes<B: HttpBody>(request: &Request<B>, stream_window: usize) -> usize {
    match request.body() {
        body if request.version() < Version::HTTP_2 || body.is_end_stream() => 0,
        body => body.size_hint().upper().map_or(stream_window, |length| {
            usize::try_from(length)
                .unwrap_or(stream_window)
                .min(stream_window)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_share_one_budget() {
        let memory = ClientMemory::new(10);
        let mut first = memory.acquire(4).unwrap();
        assert!(memory.acquire(7).is_none());
        assert!(first.grow_to(10) && !first.grow_to(11));
        assert_eq!(memory.used(), 10);
        first.shrink_to(3);
        let second = memory.acquire(7).unwrap();
        drop((first, second));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn fields_and_unread_http_2_bodies_are_charged() {
        let head = |version, length: usize| {
            let body = http_body_util::Full::new(bytes::Bytes::from(vec![0; length]));
            let request = Request::builder()
                .uri("/?a")
                .version(version)
                .header("a", "b");
            request_bytes(&request.body(body).unwrap(), 100) - REQUEST_BYTES - FIELD_BYTES
        };
        assert_eq!(head(Version::HTTP_11, 7), 4);
        assert_eq!(head(Version::HTTP_2, 7), 11);
        assert_eq!(head(Version::HTTP_2, 700), 104);
    }
}
