//! What is said of the end of a container: the kubelet's reason, the exit code, and the words that the
//! supervisor left, which are untrusted.

use crate::kubernetes::slim::SlimTerminated;

/// Longest text that is taken from an end, in characters.
pub(super) const LONGEST_WORDS: usize = 300;

/// Its reason, or its exit code where the reason says nothing.
pub(super) fn end_of(terminated: &SlimTerminated) -> String {
    match terminated.reason.as_deref() {
        Some(reason) if reason != "Error" => reason.to_owned(),
        _ => exit(terminated.exit_code),
    }
}

/// One short line: it comes from the sandbox, where anybody may have written it.
pub(super) fn words_of(terminated: &SlimTerminated) -> Option<String> {
    let message = terminated.message.as_deref()?;
    let seen: String = message.chars().filter(|c| !is_unseen(*c)).collect();
    let plain = seen.split(|c: char| c.is_control() || c.is_whitespace());
    let words: Vec<_> = plain.filter(|word| !word.is_empty()).collect();
    let words: String = words.join(" ").chars().take(LONGEST_WORDS).collect();
    (!words.is_empty()).then_some(words)
}

/// Characters without width and those that turn the direction of a text: they make it look like another.
fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}

/// An exit code, with what shells and our supervisor mean by it.
fn exit(code: i32) -> String {
    match code {
        126 => "exit code 126 (cannot be executed)".into(),
        127 => "exit code 127 (command not found)".into(),
        code => format!("exit code {code}"),
    }
}
