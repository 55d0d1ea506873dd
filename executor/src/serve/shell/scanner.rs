//! Reads the byte stream of the terminal: text and escape sequences go to the display, reports of
//! the shell become events.
//!
//! The shell reports inside an OSC sequence that starts and ends with a random token. The token
//! never appears on the screen, so no program can forge or break a report by what it prints.

use super::display::Display;
use super::prompt_report::PromptReport;

/// Longest report in bytes: a `PATH` and a working directory.
pub(super) const MAX_REPORT: usize = 256 << 10;
/// Longer sequences are ignored, in bytes.
const MAX_PARAMETERS: usize = 256;

const SEPARATOR: u8 = 0x1f;
const BEL: u8 = 0x07;
const ESC: u8 = 0x1b;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The shell starts a command.
    Started,
    /// The shell waits for the next command.
    Prompt(PromptReport),
}

#[derive(Debug)]
enum ScannerState {
    Text,
    Escape,
    /// A sequence that this byte began and that ends with the next one.
    Designator(u8),
    Control(Vec<u8>),
    /// An operating system command that may be a report: it begins like the token.
    System(Vec<u8>),
    Foreign,
}

#[derive(Debug)]
pub(super) struct Scanner {
    token: Vec<u8>,
    state: ScannerState,
    /// Start of a UTF-8 sequence.
    partial: Vec<u8>,
}

impl Scanner {
    pub(super) fn new(token: &str) -> Self {
        Self {
            token: token.as_bytes().to_vec(),
            state: ScannerState::Text,
            partial: Vec::new(),
        }
    }

    /// Processes bytes up to and including the next event. Returns their number and the event.
    pub(super) fn scan(&mut self, bytes: &[u8], text: &mut Display) -> (usize, Option<Event>) {
        let mut at = 0;
        while at < bytes.len() {
            let run = self.plain_text(&bytes[at..]);
            if run > 0 {
                text.put_ascii(&bytes[at..at + run]);
                at += run;
                continue;
            }
            at += 1;
            if let Some(event) = self.step(bytes[at - 1], text) {
                return (at, Some(event));
            }
        }
        (at, None)
    }

    /// Returns the number of leading bytes that are printable ASCII, which need no state machine.
    fn plain_text(&self, bytes: &[u8]) -> usize {
        if !matches!(self.state, ScannerState::Text) || !self.partial.is_empty() {
            return 0;
        }
        let end = bytes.iter().position(|byte| !matches!(byte, 0x20..0x7f));
        end.unwrap_or(bytes.len())
    }

    fn step(&mut self, byte: u8, text: &mut Display) -> Option<Event> {
        let state = std::mem::replace(&mut self.state, ScannerState::Text);
        self.state = match state {
            ScannerState::Text => self.text(byte, text),
            ScannerState::Escape => escape(byte, text),
            // A program ended in the middle of a sequence.
            ScannerState::Designator(_) if byte == ESC => ScannerState::Escape,
            ScannerState::Designator(set) => {
                text.designate(set, byte);
                ScannerState::Text
            }
            ScannerState::Control(parameters) => control(parameters, byte, text),
            ScannerState::Foreign => foreign(byte),
            ScannerState::System(content) => return self.system(content, byte),
        };
        None
    }

    fn text(&mut self, byte: u8, text: &mut Display) -> ScannerState {
        if byte >= 0x80 {
            self.multibyte(byte, text);
            return ScannerState::Text;
        }
        self.partial.clear();
        match byte {
            ESC => return ScannerState::Escape,
            0x20..0x7f => text.put_ascii(&[byte]),
            _ => text.control(byte),
        }
        ScannerState::Text
    }

    /// Drops invalid sequences.
    fn multibyte(&mut self, byte: u8, text: &mut Display) {
        if byte >= 0xc0 {
            self.partial.clear();
        }
        self.partial.push(byte);
        match std::str::from_utf8(&self.partial) {
            Ok(valid) => {
                let visible = valid.chars().filter(|character| !character.is_control());
                visible.for_each(|character| text.put(character));
                self.partial.clear();
            }
            Err(error) if error.error_len().is_some() => self.partial.clear(),
            Err(_) => {}
        }
    }

    fn system(&mut self, mut content: Vec<u8>, byte: u8) -> Option<Event> {
        content.push(byte);
        let compared = content.len().min(self.token.len());
        if content[..compared] != self.token[..compared] || content.len() > MAX_REPORT {
            self.state = foreign(byte);
            return None;
        }
        if let Some(fields) = self.fields(&content) {
            return event(fields);
        }
        self.state = ScannerState::System(content);
        None
    }

    /// Returns the fields of `TOKEN fields TOKEN BEL`.
    fn fields<'a>(&self, content: &'a [u8]) -> Option<&'a [u8]> {
        let inner = content.strip_prefix(self.token.as_slice())?;
        let inner = inner.strip_suffix(&[BEL])?;
        let inner = inner.strip_suffix(self.token.as_slice())?;
        inner.strip_prefix(&[SEPARATOR])?.strip_suffix(&[SEPARATOR])
    }
}

fn event(fields: &[u8]) -> Option<Event> {
    if fields == b"start" {
        return Some(Event::Started);
    }
    PromptReport::parse(fields, SEPARATOR).map(Event::Prompt)
}

fn escape(byte: u8, text: &mut Display) -> ScannerState {
    match byte {
        b'[' => ScannerState::Control(Vec::new()),
        b']' => ScannerState::System(Vec::new()),
        b'P' | b'X' | b'^' | b'_' => ScannerState::Foreign,
        b'(' | b')' | b'*' | b'+' | b'#' | b'%' | b' ' => ScannerState::Designator(byte),
        ESC => ScannerState::Escape,
        _ => {
            text.escape(byte);
            ScannerState::Text
        }
    }
}

fn foreign(byte: u8) -> ScannerState {
    match byte {
        BEL => ScannerState::Text,
        ESC => ScannerState::Escape,
        _ => ScannerState::Foreign,
    }
}

fn control(mut parameters: Vec<u8>, byte: u8, text: &mut Display) -> ScannerState {
    match byte {
        0x20..0x40 => {
            if parameters.len() < MAX_PARAMETERS {
                parameters.push(byte);
            }
            return ScannerState::Control(parameters);
        }
        ESC => return ScannerState::Escape,
        // Control characters are executed in the middle of a sequence as well.
        ..0x20 => {
            text.control(byte);
            return ScannerState::Control(parameters);
        }
        _ if parameters.len() == MAX_PARAMETERS => {}
        _ => text.sequence(&parameters, byte),
    }
    ScannerState::Text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(input: &[u8]) -> (String, Vec<Event>) {
        let mut scanner = Scanner::new("TOK");
        let mut text = Display::new();
        let mut events = Vec::new();
        // Byte by byte, because a sequence may arrive in any number of pieces.
        for byte in input {
            events.extend(scanner.scan(&[*byte], &mut text).1);
        }
        (text.unreported_text(), events)
    }

    #[test]
    fn long_escape_sequences_are_removed() {
        let colours = "38;2;255;255;255;".repeat(5);
        let (text, _) = scan(format!("\x1b[{colours}1mred\x1b[0m").as_bytes());
        assert_eq!(text, "red\n");
        let (text, _) = scan(format!("a\x1b[{}Cb", "1;".repeat(5000)).as_bytes());
        assert_eq!(text, "ab\n");
    }

    #[test]
    fn back_tab_moves_to_earlier_tab_stops() {
        for (input, expected) in [
            ("a\tb\x1b[Zc", "a       c\n"),
            ("a\tb\x1b[2Zc", "c       b\n"),
        ] {
            assert_eq!(scan(input.as_bytes()).0, expected);
        }
    }

    #[test]
    fn report_is_read_after_unfinished_sequence() {
        for unfinished in [
            "\x1b", "\x1b(", "\x1b[1;", "\x1b]0;x", "\x1bP", "\x1b]TO", "\u{e2}",
        ] {
            let (_, events) = scan(format!("{unfinished}\x1b]TOK\x1fstart\x1fTOK\x07").as_bytes());
            assert_eq!(events, [Event::Started], "{unfinished:?}");
        }
    }

    #[test]
    fn reports_become_events_and_are_not_shown() {
        let (text, events) =
            scan(b"a\x1b]TOK\x1fstart\x1fTOK\x07b\x1b]TOK\x1f3\x1f77\x1f5\x1f900\x1fu\x1fh\x1f/bin\x1f/w\x07\x1fx\x1fTOK\x07c");
        assert_eq!(text, "abc\n");
        assert_eq!(events[0], Event::Started);
        let Event::Prompt(report) = &events[1] else {
            panic!("{events:?}");
        };
        assert_eq!((report.exit_code, report.background_pid), (3, 77));
        assert_eq!(report.working_dir, "/w\u{7}\u{1f}x");
    }

    #[test]
    fn sequence_with_another_token_is_not_a_report() {
        let (text, events) = scan(b"\x1b]TOX\x1fstart\x1fTOX\x07ok");
        assert_eq!((text.as_str(), events.len()), ("ok\n", 0));
    }
}
