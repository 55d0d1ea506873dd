//! Reasons and messages of container terminations. The message comes from the sandbox and is
//! untrusted.

use shared::kubernetes::slim::SlimTerminated;

/// Maximum length of a termination message.
pub(super) const MAX_MESSAGE_CHARS: usize = 300;

/// The kubelet's reason, or the exit code if the reason is generic.
pub(super) fn termination_reason(terminated: &SlimTerminated) -> String {
    match terminated.reason.as_deref() {
        Some(reason) if reason != "Error" => reason.to_owned(),
        _ => describe_exit_code(terminated.exit_code),
    }
}

/// Reduces the message to one short line of visible characters, because the sandbox controls it.
pub(super) fn termination_message(terminated: &SlimTerminated) -> Option<String> {
    let message = terminated.message.as_deref()?;
    let seen: String = message.chars().filter(|c| !is_invisible(*c)).collect();
    let plain = seen.split(|c: char| c.is_control() || c.is_whitespace());
    let parts: Vec<_> = plain.filter(|part| !part.is_empty()).collect();
    let line: String = parts.join(" ").chars().take(MAX_MESSAGE_CHARS).collect();
    (!line.is_empty()).then_some(line)
}

/// Returns whether a character has no width or changes the text direction.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}

/// Describes an exit code as shells and the supervisor use it.
fn describe_exit_code(code: i32) -> String {
    match code {
        126 => "exit code 126 (cannot be executed)".into(),
        127 => "exit code 127 (command not found)".into(),
        code => format!("exit code {code}"),
    }
}
