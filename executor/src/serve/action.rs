//! Parses the action envelope (`docs/specs/executor.md`, section 3.1), leniently.
//!
//! Unknown keys are ignored. A missing argument is an error in the words of the Python server.

use serde_json::{Map, Value};

use self::arguments::Arguments;
pub(super) use self::error::ActionError;
pub(super) use self::lines::{LineNumber, Range};
use super::python_repr::repr;

mod arguments;
mod error;
mod lines;

/// Action names of the Python server in its order; an error for an unknown name lists them.
const ACTION_NAMES: [&str; 20] = [
    "null",
    "run",
    "run_ipython",
    "browse",
    "browse_interactive",
    "read",
    "write",
    "edit",
    "think",
    "finish",
    "reject",
    "recall",
    "change_agent_state",
    "message",
    "system",
    "condensation",
    "condensation_request",
    "call_tool_mcp",
    "task_tracking",
    "loop_recovery",
];

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Run(Run),
    Read(Read),
    Write(Write),
    Edit(Edit),
    RunCell(RunCell),
    /// An action that this server does not implement.
    Unavailable(&'static str),
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

#[derive(Debug, Default, PartialEq)]
pub(super) struct Edit {
    pub(super) command: String,
    pub(super) path: String,
    pub(super) file_text: Option<String>,
    pub(super) old_str: Option<String>,
    pub(super) new_str: Option<String>,
    pub(super) insert_line: Option<LineNumber>,
    /// Not validated: the editor has its own error texts.
    pub(super) view_range: Option<Value>,
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
            .filter(|name| ACTION_NAMES.contains(name))
            .ok_or_else(|| {
                let known = ACTION_NAMES.map(|name| format!("'{name}'")).join(", ");
                ActionError::UnknownName(repr(name), format!("[{known}]"))
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
                Ok(Self::Unavailable("browse"))
            }
            "browse_interactive" => {
                arguments.require("BrowseInteractiveAction", &["browser_actions"])?;
                Ok(Self::Unavailable("browse_interactive"))
            }
            "edit" if arguments.text("impl_source")?.as_deref() == Some("llm_based_edit") => {
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
        command: arguments.text("command")?.unwrap_or_default(),
        is_input: arguments.flag("is_input")?,
        blocking: arguments.flag("blocking")?,
        is_static: arguments.flag("is_static")?,
        cwd: arguments.text("cwd")?,
        hidden: arguments.flag("hidden")?,
        timeout: arguments.timeout()?,
    })
}

fn run_cell(arguments: &Arguments<'_>) -> Result<RunCell, ActionError> {
    arguments.require("IPythonRunCellAction", &["code"])?;
    let given = arguments.get("include_extra").is_some();
    Ok(RunCell {
        code: arguments.text("code")?.unwrap_or_default(),
        include_extra: !given || arguments.flag("include_extra")?,
        timeout: arguments.timeout()?,
    })
}

fn read(arguments: &Arguments<'_>) -> Result<Read, ActionError> {
    arguments.require("FileReadAction", &["path"])?;
    let path = arguments.text("path")?.unwrap_or_default();
    let editor = arguments.text("impl_source")?.as_deref() == Some("oh_aci");
    let through_editor = editor.then(|| Edit {
        command: "view".to_owned(),
        path: path.clone(),
        view_range: arguments.get("view_range").cloned(),
        ..Edit::default()
    });
    Ok(Read {
        path,
        range: arguments.range()?,
        through_editor,
    })
}

fn edit(arguments: &Arguments<'_>) -> Result<Edit, ActionError> {
    arguments.require("FileEditAction", &["path"])?;
    Ok(Edit {
        command: arguments.text("command")?.unwrap_or_default(),
        path: arguments.text("path")?.unwrap_or_default(),
        file_text: arguments.text("file_text")?,
        old_str: arguments.text("old_str")?,
        new_str: arguments.text("new_str")?,
        insert_line: arguments.line("insert_line")?,
        view_range: None,
    })
}

fn write(arguments: &Arguments<'_>) -> Result<Write, ActionError> {
    arguments.require("FileWriteAction", &["path", "content"])?;
    Ok(Write {
        path: arguments.text("path")?.unwrap_or_default(),
        content: arguments.text("content")?.unwrap_or_default(),
        range: arguments.range()?,
    })
}
