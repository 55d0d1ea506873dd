//! Parser of server-sent events of tool servers.

const MAX_EVENT_BYTES: usize = 32 << 20;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) data: String,
}

/// Incremental parser of an event stream.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
}

impl Events {
    /// Adds bytes and returns complete events, or `None` if an event exceeds the limit.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Vec<Event>> {
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(piece);
            if self.line.len() + self.event.data.len() > MAX_EVENT_BYTES {
                return None;
            }
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
                complete.extend(self.take(line.trim_end_matches(['\r', '\n'])));
            }
        }
        Some(complete)
    }

    fn take(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.kind),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_joined_from_chunks() {
        let text = ": ping\r\n\r\nevent: endpoint\r\ndata: /m\r\n\r\nid: 1\ndata:a\ndata: b\n\nevent: x\n\n";
        let event = |kind: &str, data: &str| Event {
            kind: kind.to_owned(),
            data: data.to_owned(),
        };
        let expected = [event("endpoint", "/m"), event("", "a\nb")];
        for size in [1, 3, text.len()] {
            let mut events = Events::default();
            let pieces = text.as_bytes().chunks(size);
            let found: Vec<_> = pieces
                .flat_map(|piece| events.push(piece).unwrap())
                .collect();
            assert_eq!(found, expected);
        }
        assert!(
            Events::default()
                .push(&vec![b'x'; MAX_EVENT_BYTES + 1])
                .is_none()
        );
    }
}
