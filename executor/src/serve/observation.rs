//! The observation envelope (`docs/specs/executor.md`, section 3.3), with its key order. Clients
//! pass `extras` on as keyword arguments, so an additional or a missing key breaks them.

use serde::Serialize;

use super::shell::CommandOutcome;

/// Longest command output in an observation, in characters.
const MAX_CONTENT: usize = 30_000;
const CUT: &str = "\n[... Observation truncated due to length ...]\n";

#[derive(Debug, Serialize)]
pub(super) struct Observation {
    message: String,
    #[serde(rename = "observation")]
    kind: &'static str,
    content: String,
    extras: Extras,
    #[serde(skip_serializing_if = "Option::is_none")]
    success: Option<bool>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Extras {
    Run {
        command: String,
        metadata: Metadata,
        hidden: bool,
    },
    Read {
        path: String,
        impl_source: &'static str,
    },
    Write {
        path: String,
    },
    Edit {
        path: String,
        prev_exist: bool,
        old_content: Option<String>,
        new_content: Option<String>,
        impl_source: &'static str,
        diff: String,
        #[serde(rename = "_diff_cache")]
        diff_cache: Option<String>,
    },
    RunCell {
        code: String,
        image_urls: Option<Vec<String>>,
    },
    Error {
        error_id: &'static str,
    },
}

#[derive(Debug, Serialize)]
struct Metadata {
    exit_code: i32,
    pid: i32,
    username: Option<String>,
    hostname: Option<String>,
    working_dir: Option<String>,
    py_interpreter_path: Option<String>,
    prefix: String,
    suffix: String,
}

impl Observation {
    /// `hidden` is that of the action.
    pub(super) fn run(command: &str, hidden: bool, outcome: CommandOutcome) -> Self {
        let content = if hidden {
            outcome.content.clone()
        } else {
            shorten(&outcome.content)
        };
        let hidden = hidden && !outcome.timed_out && !outcome.no_command_running;
        let command = if outcome.no_command_running {
            ""
        } else {
            command
        };
        let metadata = Metadata::of(outcome);
        Self {
            message: format!(
                "Command `{command}` executed with exit code {}.",
                metadata.exit_code
            ),
            kind: "run",
            content,
            success: Some(metadata.exit_code == 0),
            extras: Extras::Run {
                command: command.to_owned(),
                metadata,
                hidden,
            },
        }
    }

    pub(super) fn read(path: String, content: String, impl_source: &'static str) -> Self {
        Self {
            message: format!("I read the file {path}."),
            kind: "read",
            content,
            extras: Extras::Read { path, impl_source },
            success: None,
        }
    }

    pub(super) fn write(path: String) -> Self {
        Self {
            message: format!("I wrote to the file {path}."),
            kind: "write",
            content: String::new(),
            extras: Extras::Write { path },
            success: None,
        }
    }

    /// `old` and `new` are the strings of the action, not the contents of the file.
    pub(super) fn edit(
        path: String,
        (old, new): (Option<String>, Option<String>),
        content: String,
        diff: String,
    ) -> Self {
        Self {
            message: format!("I edited the file {path}."),
            kind: "edit",
            content,
            extras: Extras::Edit {
                path,
                prev_exist: false,
                old_content: old,
                new_content: new,
                impl_source: "oh_aci",
                diff,
                diff_cache: None,
            },
            success: None,
        }
    }

    /// `images` are data URLs.
    pub(super) fn run_cell(code: String, content: String, images: Vec<String>) -> Self {
        Self {
            message: "Code executed in IPython cell.".to_owned(),
            kind: "run_ipython",
            content,
            extras: Extras::RunCell {
                code,
                image_urls: (!images.is_empty()).then_some(images),
            },
            success: Some(true),
        }
    }

    pub(super) fn error(content: String) -> Self {
        Self {
            message: content.clone(),
            kind: "error",
            content,
            extras: Extras::Error { error_id: "" },
            success: None,
        }
    }
}

impl Metadata {
    fn of(outcome: CommandOutcome) -> Self {
        let Some(report) = outcome.report else {
            return Self {
                exit_code: -1,
                pid: -1,
                username: None,
                hostname: None,
                working_dir: None,
                py_interpreter_path: None,
                prefix: outcome.prefix,
                suffix: outcome.suffix,
            };
        };
        Self {
            exit_code: report.exit_code,
            pid: report.background_pid,
            py_interpreter_path: Some(report.python()),
            username: Some(report.username),
            hostname: Some(report.hostname),
            working_dir: Some(report.working_dir),
            prefix: outcome.prefix,
            suffix: outcome.suffix,
        }
    }
}

/// Keeps the start and the end of the content, each half of [`MAX_CONTENT`].
fn shorten(content: &str) -> String {
    let length = content.chars().count();
    if length <= MAX_CONTENT {
        return content.to_owned();
    }
    let at = |index| {
        content
            .char_indices()
            .nth(index)
            .map_or(content.len(), |(at, _)| at)
    };
    let (head, tail) = (at(MAX_CONTENT / 2), at(length - MAX_CONTENT / 2));
    format!("{}{CUT}{}", &content[..head], &content[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_content_keeps_both_ends() {
        assert_eq!(shorten(&"é".repeat(30_000)).chars().count(), 30_000);
        let cut = shorten(&format!("a{}z", "é".repeat(30_000)));
        assert_eq!(cut.chars().count(), 30_047);
        assert!(cut.starts_with('a') && cut.ends_with('z') && cut.contains(CUT));
    }
}
