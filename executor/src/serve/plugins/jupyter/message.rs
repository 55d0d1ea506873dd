//! Signed messages of the Jupyter protocol 5.3, four JSON documents each
//! (<https://jupyter-client.readthedocs.io/en/stable/messaging.html>).

use data_encoding::HEXLOWER;
use ring::hmac;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use subtle::ConstantTimeEq as _;

use super::zmtp::Frame;

const DELIMITER: &[u8] = b"<IDS|MSG>";

/// Message of a kernel about a request.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: String,
    /// Id of the request.
    pub(super) parent: String,
    pub(super) content: Content,
}

#[derive(Debug, PartialEq)]
pub(super) enum Content {
    Whole(Map<String, Value>),
    /// First and last bytes of a content that is too long.
    Edges(Vec<u8>, Vec<u8>),
}

/// Session with one kernel.
#[derive(Debug)]
pub(super) struct Conversation {
    session: String,
    /// Key that signs messages in both directions.
    pub(super) key: hmac::Key,
    requests: u64,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    msg_id: String,
    #[serde(default)]
    msg_type: String,
}

impl Conversation {
    pub(super) fn new(session: String, key: &str) -> Self {
        Self {
            session,
            key: hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()),
            requests: 0,
        }
    }

    /// Returns the id of a new request and its frames.
    pub(super) fn request(&mut self, kind: &str, content: &Value) -> (String, Vec<Vec<u8>>) {
        self.requests += 1;
        let id = format!("{}_{}", self.session, self.requests);
        // The protocol requires a date; kernels ignore it.
        let header = json!({"msg_id": id, "session": self.session, "username": "sandbox",
            "date": "1970-01-01T00:00:00Z", "msg_type": kind, "version": "5.3"});
        let parts = [&header, &json!({}), &json!({}), content].map(ToString::to_string);
        let signature = sign(&self.key, parts.iter().map(String::as_bytes));
        let mut frames = vec![DELIMITER.to_vec(), signature.into_bytes()];
        frames.extend(parts.map(String::into_bytes));
        (id, frames)
    }
}

/// Reads a message. Returns `None` if it is malformed or its signature is wrong.
pub(super) fn read(key: &hmac::Key, frames: &[Frame]) -> Option<Message> {
    let start = frames.iter().position(|frame| frame.bytes == DELIMITER)?;
    let [signature, header, parent, metadata, content, ..] = &frames[start + 1..] else {
        return None;
    };
    let signed = [header, parent, metadata, content];
    // The signature of a truncated message cannot be verified; the socket is private anyway.
    if signed.iter().all(|frame| frame.end.is_none()) {
        let expected = sign(key, signed.map(|part| part.bytes.as_slice()).into_iter());
        let same = expected.as_bytes().ct_eq(signature.bytes.as_slice());
        bool::from(same).then_some(())?;
    }
    let header: Header = parse(&header.bytes)?;
    let parent: Header = parse(&parent.bytes)?;
    let content = match &content.end {
        Some(end) => Content::Edges(content.bytes.clone(), end.clone()),
        None => Content::Whole(parse(&content.bytes)?),
    };
    Some(Message {
        kind: header.msg_type,
        parent: parent.msg_id,
        content,
    })
}

/// Kernels forward bytes that are not UTF-8, for example of file names.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_str(&String::from_utf8_lossy(bytes)).ok()
}

fn sign<'a>(key: &hmac::Key, parts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    HEXLOWER.encode(context.sign().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(parts: Vec<Vec<u8>>) -> Vec<Frame> {
        let frame = |bytes| Frame { bytes, end: None };
        parts.into_iter().map(frame).collect()
    }

    #[test]
    fn read_verifies_the_signature() {
        let mut conversation = Conversation::new("s".to_owned(), "key");
        let (id, parts) = conversation.request("execute_request", &json!({"code": "1"}));
        assert_eq!(id, "s_1");
        let mut with_address = vec![b"topic".to_vec()];
        with_address.extend(parts);
        let mut frames = frames(with_address);
        let message = read(&conversation.key, &frames).unwrap();
        assert_eq!(
            (message.kind.as_str(), message.parent.as_str()),
            ("execute_request", "")
        );
        assert!(matches!(message.content, Content::Whole(content) if content["code"] == "1"));
        frames[6].bytes = b"{}".to_vec();
        assert!(read(&conversation.key, &frames).is_none());
        frames[6].end = Some(b"x".to_vec());
        let message = read(&conversation.key, &frames).unwrap();
        assert_eq!(
            message.content,
            Content::Edges(b"{}".to_vec(), b"x".to_vec())
        );
    }

    #[test]
    fn read_replaces_invalid_utf_8() {
        let mut conversation = Conversation::new("s".to_owned(), "key");
        let (_, mut parts) = conversation.request("stream", &json!({"text": "ab"}));
        let content = parts.last_mut().unwrap();
        content.splice(10..10, [0xff]);
        let signed = parts[2..].iter().map(Vec::as_slice);
        parts[1] = sign(&conversation.key, signed).into_bytes();
        let message = read(&conversation.key, &frames(parts)).unwrap();
        assert!(
            matches!(&message.content, Content::Whole(content) if content["text"] == "a\u{fffd}b"),
            "{message:?}"
        );
    }

    #[test]
    fn read_rejects_malformed_frames() {
        let key = Conversation::new(String::new(), "key").key;
        for parts in [vec![], vec![b"x".to_vec()], vec![DELIMITER.to_vec(); 7]] {
            assert!(read(&key, &frames(parts)).is_none());
        }
    }
}
