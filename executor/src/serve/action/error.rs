//! Errors of the action envelope in the words of the Python server: clients show them to models.

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::serve) enum ActionError {
    #[error("Unknown event type: {0}")]
    UnknownEvent(String),
    #[error("400: Invalid action type")]
    Observation,
    #[error("'action['action']={0}' is not defined. Available actions: dict_keys({1})")]
    UnknownName(String, String),
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
    /// Empty text, as that of the Python server's assertion: clients turn such edits into reads
    /// and writes.
    #[error("")]
    LlmEdit,
}

/// Lists names as Python lists missing arguments: `'a' and 'b'`.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    quoted.join(" and ")
}
