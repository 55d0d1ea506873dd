//! Output of a cell: text in order of arrival and images (`docs/specs/executor.md`, section 5.2),
//! both bounded.

use serde_json::{Map, Value};

use super::message::{Content, Message};

/// Bytes of text that are kept from the beginning, and as many from the end.
const MAX_HALF_BYTES: usize = 512 << 10;
const CUT: &str = "\n[... Observation truncated due to length ...]\n";
/// Bytes of all images of a cell.
const MAX_IMAGE_BYTES: usize = 24 << 20;
const IMAGE_LEFT_OUT: &str = "\n[An image is left out: too large]\n";
const RESULT_LEFT_OUT: &str = "\n[A result is left out: too large]\n";
const ERROR_LEFT_OUT: &str = "\n[An error has occurred; what it says is left out: too large]\n";

/// One request to the kernel and its output so far.
#[derive(Debug, Default)]
pub(super) struct Cell {
    id: String,
    pub(super) text: Text,
    images: Vec<String>,
    /// The kernel has begun to run it.
    pub(super) begun: bool,
    replied: bool,
    idle: bool,
    /// The kernel has ended; no more messages follow.
    pub(super) gone: bool,
}

/// Output of a cell that has ended or timed out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) text: String,
    /// Data URLs.
    pub(crate) images: Vec<String>,
}

impl Output {
    pub(super) fn add_line(&mut self, line: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(line);
    }
}

impl Cell {
    pub(super) fn new(id: String, gone: bool) -> Self {
        Self {
            id,
            gone,
            ..Self::default()
        }
    }

    /// Both are required: the reply may arrive before earlier output.
    pub(super) fn is_done(&self) -> bool {
        self.replied && self.idle
    }

    /// Applies a message. Returns false if it belongs to another cell.
    pub(super) fn take(&mut self, message: Message) -> bool {
        if message.parent != self.id {
            return false;
        }
        match (message.kind.as_str(), message.content) {
            ("stream", Content::Whole(content)) => self.text.push(text(&content, "text")),
            ("stream", Content::Edges(first, last)) => {
                self.text.push_cut(&beginning(&first), &end(&last));
            }
            ("execute_result" | "display_data", Content::Whole(mut content)) => {
                if let Some(Value::Object(data)) = content.get_mut("data") {
                    self.show(data);
                }
            }
            ("execute_result" | "display_data", Content::Edges(..)) => {
                self.text.push(RESULT_LEFT_OUT);
            }
            ("error", Content::Whole(content)) => self.text.push(&traceback(&content)),
            ("error", Content::Edges(..)) => self.text.push(ERROR_LEFT_OUT),
            ("status", Content::Whole(content)) => match text(&content, "execution_state") {
                "busy" => self.begun = true,
                "idle" => self.idle = true,
                _ => {}
            },
            (kind, _) if kind.ends_with("_reply") => self.replied = true,
            _ => return false,
        }
        true
    }

    fn show(&mut self, data: &mut Map<String, Value>) {
        self.text.push(text(data, "text/plain"));
        let image = ["image/png", "image/jpeg"]
            .into_iter()
            .find_map(|kind| Some((kind, data.get(kind)?.as_str()?)));
        let Some((kind, base64)) = image else {
            return;
        };
        let kept: usize = self.images.iter().map(String::len).sum();
        if kept + base64.len() > MAX_IMAGE_BYTES {
            return self.text.push(IMAGE_LEFT_OUT);
        }
        let base64: String = base64.split_whitespace().collect();
        self.images.push(format!("data:{kind};base64,{base64}"));
    }

    /// Takes the output so far.
    pub(super) fn output(&mut self) -> Output {
        Output {
            text: std::mem::take(&mut self.text).join(),
            images: std::mem::take(&mut self.images),
        }
    }
}

fn text<'a>(content: &'a Map<String, Value>, name: &str) -> &'a str {
    content
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn traceback(content: &Map<String, Value>) -> String {
    let lines = content.get("traceback").and_then(Value::as_array);
    let lines = lines.into_iter().flatten().filter_map(Value::as_str);
    lines.collect::<Vec<_>>().join("\n")
}

/// Text at the start of a truncated stream message, up to the last complete character.
fn beginning(bytes: &[u8]) -> String {
    let bytes = String::from_utf8_lossy(bytes);
    let Some((_, rest)) = bytes.split_once("\"text\":") else {
        return String::new();
    };
    let rest = rest.trim_start();
    // An escape sequence is up to 12 bytes long.
    let ends = rest.char_indices().rev().map(|(at, _)| at);
    let ends = std::iter::once(rest.len()).chain(ends).take(14);
    let mut texts =
        ends.filter_map(|end| serde_json::from_str(&format!("{}\"", &rest[..end])).ok());
    texts.next().unwrap_or_default()
}

/// Text at the end of a truncated stream message, from the first complete character.
fn end(bytes: &[u8]) -> String {
    let bytes = String::from_utf8_lossy(bytes);
    let text = bytes.trim_end().trim_end_matches('}').trim_end();
    let starts = text.char_indices().map(|(at, _)| at).take(14);
    let mut texts =
        starts.filter_map(|start| serde_json::from_str(&format!("\"{}", &text[start..])).ok());
    texts.next().unwrap_or_default()
}

/// Beginning and end of a text of any length.
#[derive(Debug, Default)]
pub(super) struct Text {
    head: String,
    tail: String,
    is_cut: bool,
}

impl Text {
    pub(super) fn push(&mut self, text: &str) {
        let room = text.floor_char_boundary(MAX_HALF_BYTES.saturating_sub(self.head.len()));
        let (head, rest) = if self.tail.is_empty() && !self.is_cut {
            text.split_at(room)
        } else {
            ("", text)
        };
        self.head.push_str(head);
        self.tail.push_str(rest);
        if self.tail.len() > 2 * MAX_HALF_BYTES {
            self.shorten();
        }
    }

    /// Adds a text of which only the edges are known.
    fn push_cut(&mut self, first: &str, last: &str) {
        self.push(first);
        self.is_cut = true;
        self.tail.clear();
        self.push(last);
    }

    fn shorten(&mut self) {
        let excess = self.tail.len().saturating_sub(MAX_HALF_BYTES);
        if excess > 0 {
            self.tail.drain(..self.tail.floor_char_boundary(excess));
            self.is_cut = true;
        }
    }

    fn join(mut self) -> String {
        self.shorten();
        let cut = if self.is_cut { CUT } else { "" };
        self.head.push_str(cut);
        self.head.push_str(&self.tail);
        self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(kind: &str, content: Value) -> Message {
        let Value::Object(content) = content else {
            panic!("no object");
        };
        Message {
            kind: kind.to_owned(),
            parent: "1".to_owned(),
            content: Content::Whole(content),
        }
    }

    fn cell(messages: Vec<Message>) -> Cell {
        let mut cell = Cell::new("1".to_owned(), false);
        for message in messages {
            cell.take(message);
        }
        cell
    }

    #[test]
    fn cell_is_done_after_reply_and_idle_status() {
        let reply = || message("execute_reply", json!({"status": "ok"}));
        let idle = || message("status", json!({"execution_state": "idle"}));
        let print = || message("stream", json!({"name": "stdout", "text": "hi\n"}));
        assert!(!cell(vec![reply()]).is_done());
        assert!(!cell(vec![print(), idle()]).is_done());
        let mut late = cell(vec![reply(), print(), idle()]);
        assert!(late.is_done());
        assert_eq!(late.output().text, "hi\n");
        let mut other = print();
        other.parent = "0".to_owned();
        assert_eq!(cell(vec![other]).output(), Output::default());
    }

    #[test]
    fn rich_output_becomes_text_and_images() {
        let png =
            json!({"data": {"text/plain": "<Figure>", "image/png": "AA\nBB", "image/jpeg": "x"}});
        let html = json!({"data": {"text/html": "<b>"}});
        let error = json!({"traceback": ["a", "b"]});
        let mut cell = cell(vec![
            message("display_data", png),
            message("execute_result", html),
            message("update_display_data", json!({"data": {"text/plain": "no"}})),
            message("error", error),
        ]);
        let output = cell.output();
        assert_eq!(output.text, "<Figure>a\nb");
        assert_eq!(output.images, ["data:image/png;base64,AABB"]);
    }

    #[test]
    fn text_is_bounded() {
        let mut text = Text::default();
        for _ in 0..100 {
            text.push(&"é".repeat(MAX_HALF_BYTES / 7));
        }
        text.push("end");
        assert!(text.tail.len() <= 2 * MAX_HALF_BYTES);
        let text = text.join();
        assert!(text.starts_with('é') && text.ends_with("éend") && text.contains(CUT));
        // No character is split.
        assert!(text.len() <= 2 * MAX_HALF_BYTES + CUT.len() + 1);
        let mut short = Text::default();
        short.push(&"a".repeat(2 * MAX_HALF_BYTES));
        assert_eq!(short.join(), "a".repeat(2 * MAX_HALF_BYTES));
    }

    #[test]
    fn truncated_stream_message_keeps_its_edges() {
        for (bytes, text) in [
            (r#"{"name": "stdout", "text": "a\nb\u00"#, "a\nb"),
            (r#"{"name": "stdout", "text": "a\\"#, "a\\"),
            (r#"{"text":"\ud83d\ude0"#, ""),
            ("{", ""),
        ] {
            assert_eq!(beginning(bytes.as_bytes()), text, "{bytes}");
        }
        for (bytes, text) in [
            (r#"de00b\n"}"#, "de00b\n"),
            (r#"\ude00b" }"#, "ude00b"),
            ("x", ""),
        ] {
            assert_eq!(end(bytes.as_bytes()), text, "{bytes}");
        }
        let mut text = Text::default();
        text.push_cut("a", "z");
        assert_eq!(text.join(), format!("a{CUT}z"));
    }
}
