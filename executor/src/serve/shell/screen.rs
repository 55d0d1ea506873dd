//! What a terminal shows: the text of the command under way, and what the shell has reported.

use tokio::time::Instant;

use super::display::Display;
use super::rc;
use super::report::Report;
use super::scanner::{Event, Scanner};

/// The state of the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) text: Display,
    /// What was written while no command was under way: background jobs, late echoes.
    pub(super) earlier: String,
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
            text: Display::new(),
            earlier: String::new(),
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
                    self.drop_echo();
                    self.at_prompt = false;
                }
                Some(Event::Prompt(report)) => {
                    self.text.leave_alternate();
                    self.report = Some(report);
                    self.prompts += 1;
                    self.at_prompt = true;
                }
                None => {}
            }
        }
    }

    /// A command is about to be typed: keeps what has been written until now.
    pub(super) fn set_aside(&mut self) {
        self.earlier = self.new_text();
        self.text.clear();
    }

    /// What came before a command is the echo of the typed line, and perhaps the last words of a
    /// background job on either side of it.
    fn drop_echo(&mut self) {
        let text = self.text.since_told();
        if let Some((before, echo)) = text.rsplit_once(rc::ECHO) {
            let after = echo.split_once('\n').map_or("", |(_, after)| after);
            let texts = [self.earlier.trim_end(), before.trim_end(), after.trim_end()];
            self.earlier = join(texts);
        }
        self.text.clear();
    }

    /// What has not been told.
    pub(super) fn new_text(&self) -> String {
        let text = self.text.since_told();
        join([self.earlier.trim_end(), text.trim()])
    }

    /// Everything there is has been told.
    pub(super) fn tell(&mut self) {
        self.earlier.clear();
        self.text.tell();
    }

    /// The command has ended and everything has been told.
    pub(super) fn clear(&mut self) {
        self.earlier.clear();
        self.text.clear();
    }
}

/// Texts on lines of their own, without those that are empty.
fn join<const N: usize>(texts: [&str; N]) -> String {
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}
