//! Texts of the observation of a cell (`docs/specs/executor.md`, sections 5.2 and 5.3).

use std::fmt::Write as _;
use std::path::Path;

use crate::serve::environment::EnvironmentChanges;

const NOTHING: &str = "[Code executed successfully with no output]";

/// Content of the observation. `extra` is the directory of the shell and the interpreter.
pub(super) fn content(text: &str, extra: Option<(&Path, &str)>) -> String {
    let text = if text.is_empty() { NOTHING } else { text };
    let mut content = without_colors(text);
    content.truncate(content.trim_end().len());
    if let Some((directory, interpreter)) = extra {
        let directory = directory.display();
        let _ = write!(
            content,
            "\n[Jupyter current working directory: {directory}]\
             \n[Jupyter Python interpreter: {interpreter}]"
        );
    }
    content
}

/// Notice of a timeout. `{:?}` prints seconds as Python does.
pub(super) fn timed_out(seconds: f64) -> String {
    format!("[Execution timed out ({seconds:?} seconds).]")
}

pub(super) fn restarted(why: &str) -> String {
    format!(
        "[The Jupyter kernel has ended ({why}) and was started anew: variables and imports are gone.]"
    )
}

pub(super) fn change_directory(directory: &Path) -> String {
    let directory = serde_json::Value::from(directory.to_string_lossy());
    format!("import os; os.chdir({directory})")
}

/// Cell that changes the environment of the kernel and leaves no names.
pub(super) fn change_environment(variables: &EnvironmentChanges) -> String {
    let pairs = variables.iter();
    let pairs = pairs.map(|(name, value)| (name.clone(), value.to_string_lossy().into()));
    let variables = serde_json::Value::Object(pairs.collect());
    format!("__import__('os').environ.update({variables})")
}

/// Removes SGR sequences with up to three attributes. Others stay, as in the Python server.
fn without_colors(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match after_attributes(piece) {
            Some(rest) => kept.push_str(rest),
            None => kept.extend(["\x1b[", piece]),
        }
    }
    kept
}

/// Returns the text after `1;31m`.
fn after_attributes(piece: &str) -> Option<&str> {
    let (attributes, rest) = piece.split_once('m')?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = || attributes.split(';');
    (numbers().count() <= 3 && numbers().all(number)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colors_removes_only_sgr_sequences() {
        assert_eq!(
            without_colors("\x1b[1;31;4mred\x1b[0m \x1b[K\x1b[m\x1b[1;2;3;4m\x1b[3"),
            "red \x1b[K\x1b[m\x1b[1;2;3;4m\x1b[3"
        );
    }
}
