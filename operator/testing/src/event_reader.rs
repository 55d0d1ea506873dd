//! Reader of server-sent events (HTML, section 9.2) from a response.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::timeout;

/// Time within which an expected event arrives; short in virtual time.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Event stream of one response.
#[derive(Debug)]
pub struct EventReader<B> {
    body: B,
    unread: String,
    /// Cursor of the last event that had one.
    pub cursor: Option<String>,
    pub comments: usize,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedEvent {
    pub name: String,
    pub id: Option<String>,
    pub data: Value,
}

impl<B> EventReader<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    /// Reads a response, which must be an event stream.
    pub fn new(response: Response<B>) -> Self {
        assert_eq!(response.status(), 200);
        let kind = &response.headers()["content-type"];
        assert_eq!(kind, "text/event-stream");
        Self {
            body: response.into_body(),
            unread: String::new(),
            cursor: None,
            comments: 0,
        }
    }

    /// Reads the next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<ReceivedEvent> {
        loop {
            if let Some(end) = self.unread.find("\n\n") {
                let block: String = self.unread.drain(..end + 2).collect();
                match self.parse(&block) {
                    Some(event) => return Some(event),
                    None => self.comments += 1,
                }
                continue;
            }
            let frame = self.body.frame().await?.ok()?;
            let data = frame.into_data().unwrap_or_default();
            self.unread += std::str::from_utf8(&data).unwrap();
        }
    }

    /// Reads an event that must arrive soon.
    pub async fn expect(&mut self) -> ReceivedEvent {
        let event = timeout(ARRIVAL, self.next()).await;
        event
            .expect("an event arrives")
            .expect("the stream is open")
    }

    /// Reads up to and including an event of this name.
    pub async fn until(&mut self, name: &str) -> Vec<ReceivedEvent> {
        let mut events = Vec::new();
        loop {
            let event = self.expect().await;
            let is_last = event.name == name;
            events.push(event);
            if is_last {
                return events;
            }
        }
    }

    /// Asserts that no event arrives for a time, and the stream stays open.
    pub async fn assert_quiet_for(&mut self, time: Duration) {
        let event = timeout(time, self.next()).await;
        assert!(event.is_err(), "{event:?}");
    }

    /// Asserts that the stream ends soon, with or without more events.
    pub async fn assert_ends(&mut self) {
        let end = async { while self.next().await.is_some() {} };
        timeout(ARRIVAL, end).await.expect("the stream ends");
    }

    /// `None` for a comment.
    fn parse(&mut self, block: &str) -> Option<ReceivedEvent> {
        let field = |name: &str| {
            let prefix = format!("{name}: ");
            let mut values = block.lines().filter_map(|line| line.strip_prefix(&prefix));
            values.next_back().map(str::to_owned)
        };
        let id = field("id");
        if id.is_some() {
            self.cursor.clone_from(&id);
        }
        Some(ReceivedEvent {
            name: field("event")?,
            id,
            data: serde_json::from_str(&field("data")?).unwrap(),
        })
    }
}
