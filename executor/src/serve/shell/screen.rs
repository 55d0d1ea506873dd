//! State of a terminal: the output of the running command and the last report of the shell.

use tokio::time::Instant;

use super::bash_rc;
use super::display::Display;
use super::prompt_report::PromptReport;
use super::scanner::{Event, Scanner};

#[derive(Debug)]
pub(super) struct Screen {
    pub(super) text: Display,
    /// Output from before the command: background jobs, late echoes.
    pub(super) earlier_output: String,
    pub(super) prompts: u64,
    pub(super) at_prompt: bool,
    /// True from the start of a command to the prompt after it.
    is_running: bool,
    pub(super) report: Option<PromptReport>,
    pub(super) changed: Instant,
    /// Exit status of the shell, once it has ended.
    pub(super) ended: Option<i32>,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            text: Display::new(),
            earlier_output: String::new(),
            prompts: 0,
            at_prompt: false,
            is_running: true,
            report: None,
            changed: Instant::now(),
            ended: None,
        }
    }

    /// Processes output of the shell.
    pub(super) fn take(&mut self, mut bytes: &[u8], scanner: &mut Scanner) {
        self.changed = Instant::now();
        while !bytes.is_empty() {
            let (used, event) = scanner.scan(bytes, &mut self.text);
            bytes = &bytes[used..];
            match event {
                Some(Event::Started) => {
                    self.drop_echo();
                    self.at_prompt = false;
                    self.is_running = true;
                }
                Some(Event::Prompt(report)) => {
                    self.text.leave_alternate();
                    self.report = Some(report);
                    self.prompts += 1;
                    self.at_prompt = true;
                    self.is_running = false;
                }
                None => {}
            }
        }
        if !self.is_running {
            // The line editor of busybox asks; the next command could read a late answer.
            self.text.replies.clear();
        }
    }

    /// Keeps the output so far apart from that of the command that is typed next.
    pub(super) fn stash_earlier_output(&mut self) {
        self.earlier_output = self.unreported_text();
        self.text.clear();
    }

    /// Removes the echo of the typed line. Output of background jobs on either side of it stays.
    /// A nested shell that edits lines echoes its first one a second time.
    fn drop_echo(&mut self) {
        let text = self.text.unreported_text();
        if let Some((first, last)) = text.find(bash_rc::ECHO).zip(text.rfind(bash_rc::ECHO)) {
            let (before, echo) = (&text[..first], &text[last..]);
            let after = echo.split_once('\n').map_or("", |(_, after)| after);
            let texts = [
                self.earlier_output.trim_end(),
                before.trim_end(),
                after.trim_end(),
            ];
            self.earlier_output = join(texts);
        }
        self.text.clear();
    }

    /// Output that no response has contained.
    pub(super) fn unreported_text(&self) -> String {
        let text = self.text.unreported_text();
        join([self.earlier_output.trim_end(), text.trim()])
    }

    pub(super) fn mark_reported(&mut self) {
        self.earlier_output.clear();
        self.text.mark_reported();
    }

    /// Clears the output after the end of a command was reported.
    pub(super) fn clear(&mut self) {
        self.earlier_output.clear();
        self.text.clear();
    }
}

/// Joins the texts that are not empty with newlines.
fn join<const N: usize>(texts: [&str; N]) -> String {
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}
