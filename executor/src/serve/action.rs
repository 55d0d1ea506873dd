//! What a client asks for: the action envelope of spec 3.1, read leniently.
//!
//! Unknown keys are ignored; what is required and missing is refused in the original's words.

use serde_json::{Map, Value};

use super::python::repr;

/// Every action word of the original, in its order; it lists them when it is given another.
const WORDS: [&str; 20] = [
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
    /// Known to clients, not served here.
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
    /// Seconds; absent and zero mean none.
    pub(super) timeout: Option<f64>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Read {
    pub(super) path: String,
    pub(super) range: Range,
    /// The command for the editor, if that is asked and not the plain reader.
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
    pub(super) insert_line: Option<Line>,
    /// As it came: the editor has its own words for a bad one.
    pub(super) view_range: Option<Value>,
}

/// A line number; models send texts as well.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Number(i64),
    Text(String),
}

impl Line {
    /// The number, or the text that is none.
    pub(super) fn number(&self) -> Result<i64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => text.trim().parse().map_err(|_| text.clone()),
        }
    }
}

/// Lines, from 0; an end of -1 means all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: i64,
    pub(super) end: i64,
}

/// Why an envelope was refused, in the original's words.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum ActionError {
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

impl Action {
    pub(super) fn parse(envelope: &Map<String, Value>) -> Result<Self, ActionError> {
        let Some(word) = envelope.get("action") else {
            return Err(if envelope.contains_key("observation") {
                ActionError::Observation
            } else {
                ActionError::UnknownEvent(repr(&Value::Object(envelope.clone())))
            });
        };
        let word = word
            .as_str()
            .filter(|word| WORDS.contains(word))
            .ok_or_else(|| {
                let known = WORDS.map(|word| format!("'{word}'")).join(", ");
                ActionError::UnknownWord(repr(word), format!("[{known}]"))
            })?;
        check_source(envelope)?;
        let arguments = Arguments::of(envelope);
        match word {
            "run" => run(&arguments).map(Self::Run),
            "read" => read(&arguments).map(Self::Read),
            "write" => write(&arguments).map(Self::Write),
            "run_ipython" => arguments.unavailable("run_ipython", "IPythonRunCellAction", "code"),
            "browse" => arguments.unavailable("browse", "BrowseURLAction", "url"),
            "browse_interactive" => arguments.unavailable(
                "browse_interactive",
                "BrowseInteractiveAction",
                "browser_actions",
            ),
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

struct Arguments<'a> {
    envelope: &'a Map<String, Value>,
    values: Option<&'a Map<String, Value>>,
}

impl<'a> Arguments<'a> {
    fn of(envelope: &'a Map<String, Value>) -> Self {
        Self {
            envelope,
            values: envelope.get("args").and_then(Value::as_object),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.values?.get(name).filter(|value| !value.is_null())
    }

    fn require(&self, class: &'static str, required: &[&'static str]) -> Result<(), ActionError> {
        let given = |name: &&'static str| self.values.is_some_and(|v| v.contains_key(*name));
        let names: Vec<_> = required
            .iter()
            .filter(|name| !given(name))
            .copied()
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let action = repr(&Value::Object(self.envelope.clone()));
        Err(ActionError::Missing {
            action,
            class,
            names,
        })
    }

    fn unavailable(
        &self,
        word: &'static str,
        class: &'static str,
        required: &'static str,
    ) -> Result<Action, ActionError> {
        self.require(class, &[required])?;
        Ok(Action::Unavailable(word))
    }

    fn text(&self, name: &'static str) -> Result<Option<String>, ActionError> {
        self.get(name)
            .map(|value| {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or(ActionError::Type(name))
            })
            .transpose()
    }

    fn flag(&self, name: &'static str) -> Result<bool, ActionError> {
        self.get(name).map_or(Ok(false), |value| {
            truth(value).ok_or(ActionError::Type(name))
        })
    }

    fn line(&self, name: &'static str) -> Result<Option<Line>, ActionError> {
        self.get(name)
            .map(|value| match value {
                Value::String(text) => Ok(Line::Text(text.clone())),
                value => value
                    .as_i64()
                    .map(Line::Number)
                    .ok_or(ActionError::Type(name)),
            })
            .transpose()
    }

    fn range(&self) -> Result<Range, ActionError> {
        let number = |name, default| {
            self.get(name).map_or(Ok(default), |value| {
                value.as_i64().ok_or(ActionError::Type(name))
            })
        };
        Ok(Range {
            start: number("start", 0)?,
            end: number("end", -1)?,
        })
    }

    /// Beside the arguments, not among them.
    fn timeout(&self) -> Result<Option<f64>, ActionError> {
        match self.envelope.get("timeout") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or(ActionError::Type("timeout")),
        }
    }
}

/// Models write flags also as words; some clients pass those on.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) => number.as_i64().map(|number| number != 0),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" | "" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// As Python lists missing arguments: `'a' and 'b'`.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    quoted.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(envelope: Value) -> Result<Action, String> {
        let Value::Object(envelope) = envelope else {
            panic!("not an object");
        };
        Action::parse(&envelope).map_err(|error| error.to_string())
    }

    #[test]
    fn unknown_arguments_are_ignored() {
        let envelope = json!({"action": "run", "args": {"command": "ls", "zzz": 1}, "timeout": 3});
        let Ok(Action::Run(run)) = parse(envelope) else {
            panic!("refused");
        };
        assert_eq!((run.command.as_str(), run.timeout), ("ls", Some(3.0)));
    }

    #[test]
    fn refusals_use_the_originals_words() {
        let error = |envelope| parse(envelope).unwrap_err();
        assert_eq!(error(json!({})), "Unknown event type: {}");
        assert_eq!(
            error(json!({"observation": "run"})),
            "400: Invalid action type"
        );
        assert!(error(json!({"action": "nope"})).starts_with(
            "'action['action']='nope'' is not defined. Available actions: dict_keys(['null', "
        ));
        assert_eq!(
            error(json!({"action": "run", "args": {}})),
            "action={'action': 'run', 'args': {}} has the wrong arguments: \
             CmdRunAction.__init__() missing 1 required positional argument: 'command'"
        );
        assert!(error(json!({"action": "write"})).ends_with("arguments: 'path' and 'content'"));
        assert_eq!(
            error(json!({"action": "think", "args": {"thought": ""}})),
            "'ActionExecutor' object has no attribute 'think'"
        );
        assert_eq!(
            error(json!({"action": "run", "source": "bogus", "args": {"command": ""}})),
            "'bogus' is not a valid EventSource"
        );
    }
}
