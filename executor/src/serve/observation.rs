//! The observation envelope (`docs/specs/executor.md`, section 3.3), with its key order. Clients
//! pass `extras` on as keyword arguments, so an additional or a missing key breaks them.

use serde::Serialize;

use super::plugins::browser::PageExtras;
use super::shell::{CommandOutcome, PromptReport};

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
    Browse(Box<PageExtras>),
    Download {
        file_path: String,
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
    fn new(kind: &'static str, message: String, content: String, extras: Extras) -> Self {
        Self {
            message,
            kind,
            content,
            extras,
            success: None,
        }
    }

    /// `hidden` is that of the action.
    pub(super) fn run(command: &str, hidden: bool, outcome: CommandOutcome) -> Self {
        let content = if hidden {
            outcome.content
        } else {
            shorten(outcome.content)
        };
        let hidden = hidden && !outcome.timed_out && !outcome.no_command_running;
        let command = if outcome.no_command_running {
            ""
        } else {
            command
        };
        let report = outcome.report;
        let known = |value: fn(&PromptReport) -> &String| report.as_ref().map(value).cloned();
        let metadata = Metadata {
            exit_code: report.as_ref().map_or(-1, |report| report.exit_code),
            pid: report.as_ref().map_or(-1, |report| report.background_pid),
            username: known(|report| &report.username),
            hostname: known(|report| &report.hostname),
            working_dir: known(|report| &report.working_dir),
            py_interpreter_path: report.as_ref().map(PromptReport::python),
            prefix: outcome.prefix,
            suffix: outcome.suffix,
        };
        let code = metadata.exit_code;
        let extras = Extras::Run {
            command: command.to_owned(),
            metadata,
            hidden,
        };
        let message = format!("Command `{command}` executed with exit code {code}.");
        Self {
            success: Some(code == 0),
            ..Self::new("run", message, content, extras)
        }
    }

    pub(super) fn read(path: String, content: String, impl_source: &'static str) -> Self {
        let message = format!("I read the file {path}.");
        Self::new("read", message, content, Extras::Read { path, impl_source })
    }

    pub(super) fn write(path: String) -> Self {
        let message = format!("I wrote to the file {path}.");
        Self::new("write", message, String::new(), Extras::Write { path })
    }

    /// `old` and `new` are the strings of the action, not the contents of the file.
    pub(super) fn edit(
        path: String,
        (old, new): (Option<String>, Option<String>),
        content: String,
        diff: String,
    ) -> Self {
        let message = format!("I edited the file {path}.");
        let extras = Extras::Edit {
            path,
            prev_exist: false,
            old_content: old,
            new_content: new,
            impl_source: "oh_aci",
            diff,
            diff_cache: None,
        };
        Self::new("edit", message, content, extras)
    }

    /// `images` are data URLs.
    pub(super) fn run_cell(code: String, content: String, images: Vec<String>) -> Self {
        let message = "Code executed in IPython cell.".to_owned();
        let image_urls = (!images.is_empty()).then_some(images);
        let extras = Extras::RunCell { code, image_urls };
        Self {
            success: Some(true),
            ..Self::new("run_ipython", message, content, extras)
        }
    }

    pub(super) fn browse(content: String, extras: PageExtras) -> Self {
        let message = format!("Visited {}", extras.url);
        Self::new("browse", message, content, Extras::Browse(Box::new(extras)))
    }

    /// `program` is the action that caused the download.
    pub(super) fn download(program: &str, file_path: String) -> Self {
        let content = format!(
            "Execution of the previous action {program} resulted in a file download. The \
             downloaded file is saved at location: {file_path}"
        );
        let message = format!("Downloaded file: {file_path}");
        Self::new("download", message, content, Extras::Download { file_path })
    }

    pub(super) fn error(content: String) -> Self {
        Self::new(
            "error",
            content.clone(),
            content,
            Extras::Error { error_id: "" },
        )
    }
}

/// Keeps the start and the end of the content, each half of [`MAX_CONTENT`].
fn shorten(content: String) -> String {
    let length = content.chars().count();
    if length <= MAX_CONTENT {
        return content;
    }
    let at = |index| {
        let found = content.char_indices().nth(index);
        found.map_or(content.len(), |(at, _)| at)
    };
    let (head, tail) = (at(MAX_CONTENT / 2), at(length - MAX_CONTENT / 2));
    format!("{}{CUT}{}", &content[..head], &content[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_content_keeps_both_ends() {
        assert_eq!(shorten("é".repeat(30_000)).chars().count(), 30_000);
        let cut = shorten(format!("a{}z", "é".repeat(30_000)));
        assert_eq!(cut.chars().count(), 30_047);
        assert!(cut.starts_with('a') && cut.ends_with('z') && cut.contains(CUT));
    }
}
