//! Ends of builds without an image.

use shared::image_builds::reason;

/// Characters of a message; the schema has room for four bytes each.
const MAX_MESSAGE: usize = 1000;

/// Cause of a failure, for the status of the `ImageBuild`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// One word.
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: tail(&message.into(), MAX_MESSAGE),
        }
    }

    /// `waiting` is what the Pod still waits for.
    pub(super) fn deadline(waiting: Option<&str>) -> Self {
        let text = "the build did not end within 29 minutes of its request";
        let text = waiting.map_or(text.to_owned(), |waiting| format!("{text}: {waiting}"));
        Self::new(reason::DEADLINE_EXCEEDED, text)
    }

    /// The same with the end of the log, without control characters and at most as long as the
    /// status allows.
    pub(super) fn with_log(self, log: &str) -> Self {
        let text = format!("{}\n{}", self.message, log.trim());
        Self::new(self.reason, text.trim())
    }
}

/// Last characters of a text, from the beginning of a line if there is one among them.
fn tail(text: &str, max: usize) -> String {
    let is_text = |char: &char| *char == '\n' || !char.is_control();
    let chars: Vec<char> = text.chars().filter(is_text).collect();
    let Some(cut) = chars.len().checked_sub(max) else {
        return chars.into_iter().collect();
    };
    let rest = &chars[cut..];
    let line = rest.iter().position(|char| *char == '\n');
    let rest = line.map_or(rest, |line| &rest[line + 1..]);
    format!("…\n{}", rest.iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_ends_with_the_end_of_the_log() {
        let failure = || Failure::new("BuildFailed", "exit code 1");
        let short = failure().with_log("\u{1b}[31mboom\r\n\n");
        assert_eq!(short.message, "exit code 1\n[31mboom");
        assert_eq!(failure().with_log("").message, "exit code 1");
        let lines: Vec<_> = (0..1000).map(|line| format!("line {line}\n")).collect();
        let long = failure().with_log(&lines.concat()).message;
        assert!(
            long.starts_with("…\nline ") && long.ends_with("line 999"),
            "{long}"
        );
        let one_line = failure().with_log(&"ü".repeat(9000)).message;
        assert!(one_line.len() <= 4096 && one_line.ends_with('ü'));
    }
}
