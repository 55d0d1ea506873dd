//! What a terminal shows: the text of the command under way, and what the shell has reported.

use tokio::time::Instant;

use super::report::Report;
use super::scanner::{Event, Scanner};
use super::transcript::Transcript;

/// The state of the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) text: Transcript,
    /// Prompts seen so far.
    pub(super) prompts: u64,
    pub(super) at_prompt: bool,
    pub(super) report: Option<Report>,
    pub(super) changed: Instant,
    /// The exit status of the shell itself, once it has ended.
    pub(super) ended: Option<i32>,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            text: Transcript::default(),
            prompts: 0,
            at_prompt: false,
            report: None,
            changed: Instant::now(),
            ended: None,
        }
    }

    /// Takes in what the shell has written.
    pub(super) fn take(&mut self, mut bytes: &[u8], scanner: &mut Scanner) {
        self.changed = Instant::now();
        while !bytes.is_empty() {
            let (used, event) = scanner.scan(bytes, &mut self.text);
            bytes = &bytes[used..];
            match event {
                Some(Event::Started) => {
                    // What came before is the echo of the typed line.
                    self.text.clear();
                    self.at_prompt = false;
                }
                Some(Event::Prompt(report)) => {
                    self.report = Some(report);
                    self.prompts += 1;
                    self.at_prompt = true;
                }
                None => {}
            }
        }
    }
}
