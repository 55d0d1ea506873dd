//! Errors of the editor, in the words of the Python server.

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::serve) enum EditError {
    #[error("Invalid `{parameter}` parameter: {value}. {hint}")]
    Invalid {
        parameter: &'static str,
        value: String,
        hint: String,
    },
    #[error("Invalid insert_line value: '{0}'. Expected an integer.")]
    Line(String),
    #[error("Parameter `{parameter}` is required for command: {command}.")]
    Missing {
        parameter: &'static str,
        command: String,
    },
    #[error(
        "Unrecognized command {0}. The allowed commands for the oh_editor tool are: view, create, \
         str_replace, insert, undo_edit"
    )]
    Command(String),
    #[error("No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")]
    NoMatch { old: String, path: String },
    #[error(
        "No replacement was performed. Multiple occurrences of old_str `{old}` in lines {lines:?}. \
         Please ensure it is unique."
    )]
    ManyMatches { old: String, lines: Vec<usize> },
    #[error("File validation failed for {path}: {reason}")]
    File { path: String, reason: String },
    #[error(
        "Error in converting file to Markdown: {reason}. Please use Python code to read {path}"
    )]
    Conversion { path: String, reason: &'static str },
    #[error("No edit history found for {0}.")]
    NoHistory(String),
    #[error("Ran into {error} while trying to {operation} {path}")]
    System {
        error: String,
        operation: &'static str,
        path: String,
    },
}
