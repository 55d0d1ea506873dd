//! What a cell has written: texts in the order of their arrival and images (spec 5.2), within
//! bounds that no cell can exceed.

use serde_json::{Map, Value};

use super::message::{Content, Message};

/// Bytes of text kept from the beginning, and as many from the end.
const HALF: usize = 512 << 10;
const CUT: &str = "\n[... Observation truncated due to length ...]\n";
/// Bytes of all images of a cell together.
const MAX_IMAGES: usize = 24 << 20;
const IMAGE_LEFT_OUT: &str = "\n[An image is left out: too large]\n";
const RESULT_LEFT_OUT: &str = "\n[A result is left out: too large]\n";
const ERROR_LEFT_OUT: &str = "\n[An error has occurred; what it says is left out: too large]\n";

/// One request to the kernel and what has come of it so far.
#[derive(Debug, Default)]
pub(super) struct Cell {
    id: String,
    text: Text,
    images: Vec<String>,
    /// The kernel has begun with it.
    pub(super) begun: bool,
    replied: bool,
    idle: bool,
    /// The kernel has ended; nothing more will come.
    pub(super) gone: bool,
}

/// What is left of a cell that has ended or was given up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct Output {
    pub(in crate::serve) text: String,
    /// Data URLs.
    pub(in crate::serve) images: Vec<String>,
}

impl Cell {
    pub(super) fn new(id: String, gone: bool) -> Self {
        Self {
            id,
            gone,
            ..Self::default()
        }
    }

    /// Both are needed: the reply may overtake what was written before it.
    pub(super) fn is_done(&self) -> bool {
        self.replied && self.idle
    }

    /// Takes note of a message, if it is about this cell.
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
        if kept + base64.len() > MAX_IMAGES {
            return self.text.push(IMAGE_LEFT_OUT);
        }
        let base64: String = base64.split_whitespace().collect();
        self.images.push(format!("data:{kind};base64,{base64}"));
    }

    /// What programs of the cell have written past the kernel.
    pub(super) fn take_raw(&mut self, text: &str) {
        self.text.push(text);
    }

    /// All that has come, and nothing after it.
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

/// The text of a stream message that is cut: up to the last character that is whole.
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

/// The same at the end: from the first character that is whole.
fn end(bytes: &[u8]) -> String {
    let bytes = String::from_utf8_lossy(bytes);
    let text = bytes.trim_end().trim_end_matches('}').trim_end();
    let starts = text.char_indices().map(|(at, _)| at).take(14);
    let mut texts =
        starts.filter_map(|start| serde_json::from_str(&format!("\"{}", &text[start..])).ok());
    texts.next().unwrap_or_default()
}

/// The beginning and the end of a text of any length.
#[derive(Debug, Default)]
struct Text {
    head: String,
    tail: String,
    is_cut: bool,
}

impl Text {
    fn push(&mut self, text: &str) {
        let room = floor(text, HALF.saturating_sub(self.head.len()));
        let (head, rest) = if self.tail.is_empty() && !self.is_cut {
            text.split_at(room)
        } else {
            ("", text)
        };
        self.head.push_str(head);
        self.tail.push_str(rest);
        if self.tail.len() > 2 * HALF {
            self.shorten();
        }
    }

    /// A text of which only the edges are known.
    fn push_cut(&mut self, first: &str, last: &str) {
        self.push(first);
        self.is_cut = true;
        self.tail.clear();
        self.push(last);
    }

    fn shorten(&mut self) {
        if let Some(excess) = self
            .tail
            .len()
            .checked_sub(HALF)
            .filter(|excess| *excess > 0)
        {
            self.tail.drain(..floor(&self.tail, excess));
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

/// The last place at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at)
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
    fn a_cell_is_done_when_both_channels_say_so() {
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
    fn rich_output_is_text_and_images() {
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
    fn what_is_too_large_is_told() {
        for (kind, told) in [
            ("execute_result", RESULT_LEFT_OUT),
            ("display_data", RESULT_LEFT_OUT),
            ("error", ERROR_LEFT_OUT),
        ] {
            let mut large = message(kind, json!({}));
            large.content = Content::Edges(Vec::new(), Vec::new());
            assert_eq!(cell(vec![large]).output().text, told, "{kind}");
        }
    }

    #[test]
    fn texts_of_any_length_are_bounded() {
        let mut text = Text::default();
        for _ in 0..100 {
            text.push(&"é".repeat(HALF / 7));
        }
        text.push("end");
        assert!(text.tail.len() <= 2 * HALF);
        let text = text.join();
        assert!(text.starts_with('é') && text.ends_with("éend") && text.contains(CUT));
        // A character is kept whole.
        assert!(text.len() <= 2 * HALF + CUT.len() + 1);
        let mut short = Text::default();
        short.push(&"a".repeat(2 * HALF));
        assert_eq!(short.join(), "a".repeat(2 * HALF));
    }

    #[test]
    fn a_stream_that_is_cut_keeps_its_edges() {
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
