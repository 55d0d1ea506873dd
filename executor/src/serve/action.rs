//! Parses the action envelope (`docs/specs/executor.md`, section 3.1), leniently.
//!
//! Unknown keys are ignored. A missing argument is an error in the words of the Python server.

use browser::python_repr::repr;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use self::arguments::Arguments;
use super::plugins::browser::{Browse, BrowseKind};

mod arguments;

/// Action names of the Python server in its order; an error for an unknown name lists them.
const ACTION_NAMES: &str = "null run run_ipython browse browse_interactive read write edit think \
    finish reject recall change_agent_state message system condensation condensation_request \
    call_tool_mcp task_tracking loop_recovery";

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Run(Run),
    Read(Read),
    Write(Write),
    Edit(Edit),
    RunCell(RunCell),
    Browse(Browse),
}

#[derive(Debug, PartialEq)]
pub(super) struct Run {
    pub(super) command: String,
    pub(super) is_input: bool,
    pub(super) blocking: bool,
    pub(super) is_static: bool,
    pub(super) cwd: Option<String>,
    pub(super) hidden: bool,
    /// Timeout in seconds; absent and zero mean none.
    pub(super) timeout: Option<f64>,
}

/// Python code for the kernel.
#[derive(Debug, PartialEq)]
pub(super) struct RunCell {
    pub(super) code: String,
    /// True if the content ends with the directory and the interpreter.
    pub(super) include_extra: bool,
    /// Timeout in seconds; absent and zero mean none.
    pub(super) timeout: Option<f64>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Read {
    pub(super) path: String,
    pub(super) range: Range,
    /// The editor command, if `impl_source` selects the editor.
    pub(super) through_editor: Option<Edit>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Write {
    pub(super) path: String,
    pub(super) content: String,
    pub(super) range: Range,
}

/// Arguments of `edit` and, as JSON, of the skill `file_editor`.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Edit {
    pub(super) command: String,
    pub(super) path: String,
    pub(super) file_text: Option<String>,
    pub(super) old_str: Option<String>,
    pub(super) new_str: Option<String>,
    #[serde(deserialize_with = "any_line")]
    pub(super) insert_line: Option<LineNumber>,
    /// Not validated: the editor has its own error texts.
    pub(super) view_range: Option<Value>,
}

/// A line number; models also send text.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub(super) enum LineNumber {
    Number(i64),
    Text(String),
}

impl LineNumber {
    /// Returns the number, or the text if it is not a number.
    pub(super) fn number(&self) -> Result<i64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => text.trim().parse().map_err(|_| text.clone()),
        }
    }
}

/// Keeps a value of another type as text: the editor says what is wrong with it.
fn any_line<'de, D: Deserializer<'de>>(value: D) -> Result<Option<LineNumber>, D::Error> {
    let line = Option::<Value>::deserialize(value)?;
    let text = |line: Value| {
        LineNumber::deserialize(&line).unwrap_or_else(|_| LineNumber::Text(line.to_string()))
    };
    Ok(line.map(text))
}

/// Range of lines, from 0; an end of -1 means all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: i64,
    pub(super) end: i64,
}

/// Errors of the envelope in the words of the Python server: clients show them to models.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum ActionError {
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
    /// Empty, as the Python server's assertion: clients turn such edits into reads and writes.
    #[error("")]
    LlmEdit,
}

/// Lists names as Python lists missing arguments: `'a' and 'b'`.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    quoted.join(" and ")
}

impl Action {
    pub(super) fn parse(envelope: &Map<String, Value>) -> Result<Self, ActionError> {
        let Some(name) = envelope.get("action") else {
            return Err(if envelope.contains_key("observation") {
                ActionError::Observation
            } else {
                ActionError::UnknownEvent(repr(&Value::Object(envelope.clone())))
            });
        };
        let name = name
            .as_str()
            .filter(|name| ACTION_NAMES.split(' ').any(|known| known == *name))
            .ok_or_else(|| {
                let known = ACTION_NAMES.replace(' ', "', '");
                ActionError::UnknownName(repr(name), format!("['{known}']"))
            })?;
        check_source(envelope)?;
        let arguments = Arguments::of(envelope);
        match name {
            "run" => run(&arguments).map(Self::Run),
            "read" => read(&arguments).map(Self::Read),
            "write" => write(&arguments).map(Self::Write),
            "run_ipython" => run_cell(&arguments).map(Self::RunCell),
            "browse" => {
                arguments.require("BrowseURLAction", &["url"])?;
                browse(
                    &arguments,
                    BrowseKind::Url(arguments.get("url")?.unwrap_or_default()),
                )
            }
            "browse_interactive" => {
                arguments.require("BrowseInteractiveAction", &["browser_actions"])?;
                let program = arguments.get("browser_actions")?.unwrap_or_default();
                browse(&arguments, BrowseKind::Program(program))
            }
            "edit" if arguments.get("impl_source")? == Some("llm_based_edit") => {
                Err(ActionError::LlmEdit)
            }
            "edit" => edit(&arguments).map(Self::Edit),
            other => Err(ActionError::NotExecutable(other.to_owned())),
        }
    }
}

fn check_source(envelope: &Map<String, Value>) -> Result<(), ActionError> {
    match envelope.get("source") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(source))
            if ["agent", "user", "environment"].contains(&source.as_str()) =>
        {
            Ok(())
        }
        Some(other) => Err(ActionError::Source(repr(other))),
    }
}

fn run(arguments: &Arguments<'_>) -> Result<Run, ActionError> {
    arguments.require("CmdRunAction", &["command"])?;
    Ok(Run {
        command: arguments.get("command")?.unwrap_or_default(),
        is_input: arguments.flag("is_input")?.unwrap_or_default(),
        blocking: arguments.flag("blocking")?.unwrap_or_default(),
        is_static: arguments.flag("is_static")?.unwrap_or_default(),
        cwd: arguments.get("cwd")?,
        hidden: arguments.flag("hidden")?.unwrap_or_default(),
        timeout: arguments.timeout()?,
    })
}

fn run_cell(arguments: &Arguments<'_>) -> Result<RunCell, ActionError> {
    arguments.require("IPythonRunCellAction", &["code"])?;
    Ok(RunCell {
        code: arguments.get("code")?.unwrap_or_default(),
        include_extra: arguments.flag("include_extra")?.unwrap_or(true),
        timeout: arguments.timeout()?,
    })
}

fn browse(arguments: &Arguments<'_>, kind: BrowseKind) -> Result<Action, ActionError> {
    Ok(Action::Browse(Browse {
        kind,
        return_axtree: arguments.flag("return_axtree")?.unwrap_or_default(),
    }))
}

fn read(arguments: &Arguments<'_>) -> Result<Read, ActionError> {
    arguments.require("FileReadAction", &["path"])?;
    let path: String = arguments.get("path")?.unwrap_or_default();
    let editor = arguments.get("impl_source")? == Some("oh_aci");
    let view = Edit {
        command: "view".to_owned(),
        path: path.clone(),
        view_range: arguments.get("view_range")?,
        ..Edit::default()
    };
    Ok(Read {
        path,
        range: arguments.range()?,
        through_editor: editor.then_some(view),
    })
}

fn edit(arguments: &Arguments<'_>) -> Result<Edit, ActionError> {
    arguments.require("FileEditAction", &["path"])?;
    Ok(Edit {
        command: arguments.get("command")?.unwrap_or_default(),
        path: arguments.get("path")?.unwrap_or_default(),
        file_text: arguments.get("file_text")?,
        old_str: arguments.get("old_str")?,
        new_str: arguments.get("new_str")?,
        insert_line: arguments.get("insert_line")?,
        view_range: None,
    })
}

fn write(arguments: &Arguments<'_>) -> Result<Write, ActionError> {
    arguments.require("FileWriteAction", &["path", "content"])?;
    Ok(Write {
        path: arguments.get("path")?.unwrap_or_default(),
        content: arguments.get("content")?.unwrap_or_default(),
        range: arguments.range()?,
    })
}
