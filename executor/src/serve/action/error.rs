//! Why an envelope is refused, in the original's words: clients show them to models.

/// Why an envelope was refused, in the original's words.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::serve) enum ActionError {
    #[error("Unknown event type: {0}")]
    UnknownEvent(String),
    #[error("400: Invalid action type")]
    Observation,
    #[error("'action['action']={0}' is not defined. Available actions: dict_keys({1})")]
    UnknownWord(String, String),
    #[error("'ActionExecutor' object has no attribute '{0}'")]
    NotExecutable(String),
    #[error("{0} is not a valid EventSource")]
    Source(String),
    #[error(
        "action={action} has the wrong arguments: {class}.__init__() missing {count} required \
         positional argument{plural}: {names}",
        count = names.len(),
        plural = if names.len() == 1 { "" } else { "s" },
        names = listed(names)
    )]
    Missing {
        action: String,
        class: &'static str,
        names: Vec<&'static str>,
    },
    #[error("argument '{0}' has the wrong type")]
    Type(&'static str),
    /// The original asserts, without a word: clients turn such edits into reads and writes.
    #[error("")]
    LlmEdit,
}

/// As Python lists missing arguments: `'a' and 'b'`.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    quoted.join(" and ")
}
