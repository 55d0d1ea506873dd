//! The agent's shell as viewers see it: its output without the reports to this server, and each
//! command in place of the line that makes the shell read it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::bash_rc::ECHO;
use super::scanner::MAX_REPORT;
use crate::serve::output_log::{OutputLog, Stream};

/// Longest line that makes the shell read a command, in bytes.
const MAX_LINE: usize = 1 << 10;
const ESC: u8 = 0x1b;

#[derive(Debug)]
pub(super) struct AgentView {
    log: Arc<OutputLog>,
    filter: Mutex<ViewFilter>,
}

impl AgentView {
    pub(super) fn new(log: &Arc<OutputLog>, token: &str) -> Self {
        Self {
            log: Arc::clone(log),
            filter: Mutex::new(ViewFilter::new(token)),
        }
    }

    /// Announces a command whose line will be echoed.
    pub(super) fn show(&self, command: &str) {
        let text = format!("$ {}\r\n", command.replace('\n', "\r\n"));
        self.filter.lock().command = Some(text.into_bytes());
    }

    /// Takes output of the shell, without waiting for viewers.
    pub(super) fn take(&self, bytes: &[u8]) {
        let visible = self.filter.lock().pass(bytes);
        self.log.push(Stream::Output, &visible);
    }
}

#[derive(Debug)]
struct ViewFilter {
    report_start: Vec<u8>,
    report_end: Vec<u8>,
    /// Text in place of the next echo.
    command: Option<Vec<u8>>,
    /// Beginning of a report or echo.
    held: Vec<u8>,
}

/// Part of the output that begins at a byte.
enum Part {
    /// As it is, of this length.
    Visible(usize),
    Report(usize),
    Echo(usize),
    /// Not known before there is more.
    Unfinished,
}

impl ViewFilter {
    fn new(token: &str) -> Self {
        Self {
            report_start: format!("\x1b]{token}\x1f").into_bytes(),
            report_end: format!("\x1f{token}\x07").into_bytes(),
            command: None,
            held: Vec::new(),
        }
    }

    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend(bytes);
        let mut visible = Vec::with_capacity(all.len());
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let length = match self.first_part(rest) {
                Part::Visible(length) => {
                    visible.extend(&rest[..length]);
                    length
                }
                Part::Report(length) => length,
                Part::Echo(length) => {
                    visible.extend(self.command.take().unwrap_or_default());
                    length
                }
                Part::Unfinished => {
                    self.held = rest.to_vec();
                    break;
                }
            };
            rest = &rest[length..];
        }
        visible
    }

    fn first_part(&self, bytes: &[u8]) -> Part {
        let echo = self.command.as_ref().map(|_| ECHO.as_bytes());
        let may_begin = |byte: &u8| *byte == ESC || echo.is_some_and(|echo| echo[0] == *byte);
        match bytes.iter().position(may_begin) {
            None => return Part::Visible(bytes.len()),
            Some(0) => {}
            Some(length) => return Part::Visible(length),
        }
        match between(bytes, &self.report_start, &self.report_end, MAX_REPORT) {
            Between::Whole(length) => return Part::Report(length),
            Between::Unfinished => return Part::Unfinished,
            Between::Other => {}
        }
        match echo.map(|echo| between(bytes, echo, b"\n", MAX_LINE)) {
            Some(Between::Whole(length)) => Part::Echo(length),
            Some(Between::Unfinished) => Part::Unfinished,
            _ => Part::Visible(1),
        }
    }
}

/// Beginning of the bytes, compared with a part that has a start and an end.
enum Between {
    /// Its length.
    Whole(usize),
    Unfinished,
    Other,
}

fn between(bytes: &[u8], start: &[u8], end: &[u8], limit: usize) -> Between {
    let compared = bytes.len().min(start.len());
    if bytes[..compared] != start[..compared] {
        return Between::Other;
    }
    let tail = bytes.get(start.len()..).unwrap_or_default();
    let found = tail.windows(end.len()).position(|window| window == end);
    match found {
        Some(at) => Between::Whole(start.len() + at + end.len()),
        None if bytes.len() <= limit => Between::Unfinished,
        None => Between::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(input: &str, piece: usize, command: Option<&str>) -> String {
        let view = AgentView::new(&Arc::default(), "TOK");
        if let Some(command) = command {
            view.show(command);
        }
        let pieces = input.as_bytes().chunks(piece);
        let mut filter = view.filter.lock();
        let visible: Vec<_> = pieces.flat_map(|piece| filter.pass(piece)).collect();
        String::from_utf8(visible).unwrap()
    }

    #[test]
    fn reports_are_removed_and_other_sequences_stay() {
        let input = "a\x1b[31mred\x1b]0;title\x07\x1b]TOK\x1fstart\x1fTOK\x07b\x1b]TOK\x1f0\x1f/w\x07\x1fTOK\x07c";
        for piece in [1, 2, 3, 7, 1000] {
            let visible = pass(input, piece, None);
            assert_eq!(visible, "a\x1b[31mred\x1b]0;title\x07bc", "{piece}");
        }
    }

    #[test]
    fn command_takes_the_place_of_its_echo_once() {
        let echo = format!("{ECHO}3 && :; }} 9>&2\r\n");
        let input = format!("{{ a }}\r\n{echo}out {{\r\n{echo}");
        for piece in [1, 5, 1000] {
            let visible = pass(&input, piece, Some("ls\npwd"));
            assert_eq!(
                visible,
                format!("{{ a }}\r\n$ ls\r\npwd\r\nout {{\r\n{echo}")
            );
        }
        assert_eq!(pass(&echo, 4, None), echo);
    }

    #[test]
    fn unfinished_parts_are_bounded() {
        let line = format!("{ECHO}{}", "x".repeat(2 * MAX_LINE));
        assert_eq!(pass(&line, 100, Some("ls")), line);
        let report = format!("\x1b]TOK\x1f{}", "x".repeat(2 * MAX_REPORT));
        assert_eq!(pass(&report, 16 << 10, None), report);
    }
}
