//! Actions of the server in a sandbox: commands, cells and files (`docs/specs/executor.md`, section 3).

use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::{Repeat, encode};
use crate::http_client;
use crate::{Error, Sandbox};

/// Time that the answer may take beyond that of the action.
const ANSWER_GRACE: Duration = Duration::from_secs(30);

/// A command for the shell of the sandbox, which keeps directory and variables between commands.
#[derive(Debug, Clone)]
pub struct Run {
    pub command: String,
    /// Time after which the answer comes although the command goes on.
    pub timeout: Option<Duration>,
    /// Wait for the end also when nothing is printed for a while.
    pub is_blocking: bool,
    /// Text or key for the command that runs.
    pub is_input: bool,
    /// A shell for this command alone, in this directory.
    pub isolated_in: Option<String>,
}

/// Result of a command.
#[derive(Debug, Clone, Deserialize)]
pub struct CommandOutput {
    /// Output of both streams as a terminal shows it.
    pub content: String,
    extras: CommandExtras,
}

#[derive(Debug, Clone, Deserialize)]
struct CommandExtras {
    metadata: CommandMetadata,
}

#[derive(Debug, Clone, Deserialize)]
struct CommandMetadata {
    exit_code: i32,
    working_dir: Option<String>,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    suffix: String,
}

/// Result of a cell of Python.
#[derive(Debug, Clone, Deserialize)]
pub struct CellOutput {
    pub content: String,
    extras: CellExtras,
}

#[derive(Debug, Clone, Deserialize)]
struct CellExtras {
    #[serde(default)]
    image_urls: Option<Vec<String>>,
}

/// A change of a file.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Creates a file that must not exist.
    Create { text: String },
    /// Replaces text that occurs once.
    Replace { old: String, new: String },
    /// Inserts after a line; 0: at the beginning.
    Insert { line: u64, text: String },
    /// Takes back the last edit.
    Undo,
}

impl Run {
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            timeout: None,
            is_blocking: true,
            is_input: false,
            isolated_in: None,
        }
    }

    fn args(&self) -> Value {
        json!({
            "command": self.command,
            "blocking": self.is_blocking,
            "is_input": self.is_input,
            "is_static": self.isolated_in.is_some(),
            "cwd": self.isolated_in,
        })
    }
}

impl CommandOutput {
    /// `None` while the command still runs.
    pub fn exit_code(&self) -> Option<i32> {
        Some(self.extras.metadata.exit_code).filter(|code| *code >= 0)
    }

    /// Directory of the shell afterwards.
    pub fn working_dir(&self) -> Option<&str> {
        self.extras.metadata.working_dir.as_deref()
    }

    /// Notes of the server before and after the content.
    pub fn notes(&self) -> (&str, &str) {
        (
            &self.extras.metadata.prefix,
            self.extras.metadata.suffix.trim_start(),
        )
    }
}

impl CellOutput {
    /// Data URLs of pictures.
    pub fn images(&self) -> &[String] {
        self.extras.image_urls.as_deref().unwrap_or_default()
    }
}

impl Sandbox {
    /// Runs a command to its end.
    pub async fn run(&self, command: &str) -> Result<CommandOutput, Error> {
        self.run_with(&Run::new(command)).await
    }

    pub async fn run_with(&self, run: &Run) -> Result<CommandOutput, Error> {
        self.act("run", run.args(), run.timeout).await
    }

    /// Runs a cell of Python; needs the plugin `jupyter`.
    pub async fn run_python(
        &self,
        code: &str,
        timeout: Option<Duration>,
    ) -> Result<CellOutput, Error> {
        self.act(
            "run_ipython",
            json!({"code": code, "include_extra": false}),
            timeout,
        )
        .await
    }

    /// Reads a text file; a relative path is below the directory of the shell.
    pub async fn read(&self, path: &str) -> Result<String, Error> {
        self.content("read", json!({"path": path})).await
    }

    /// Writes a text file, which ends in a newline afterwards. Missing directories are created.
    pub async fn write(&self, path: &str, content: &str) -> Result<(), Error> {
        let content = content.strip_suffix('\n').unwrap_or(content);
        self.content("write", json!({"path": path, "content": content}))
            .await
            .map(drop)
    }

    /// Edits a file by its absolute path; the text around the change.
    pub async fn edit(&self, path: &str, edit: &Edit) -> Result<String, Error> {
        let mut args = match edit {
            Edit::Create { text } => json!({"command": "create", "file_text": text}),
            Edit::Replace { old, new } => {
                json!({"command": "str_replace", "old_str": old, "new_str": new})
            }
            Edit::Insert { line, text } => {
                json!({"command": "insert", "insert_line": line, "new_str": text})
            }
            Edit::Undo => json!({"command": "undo_edit"}),
        };
        args["path"] = path.into();
        args["impl_source"] = "oh_aci".into();
        let content = self.content("edit", args).await?;
        match content.strip_prefix("ERROR:\n") {
            Some(error) => Err(Error::Action(error.into())),
            None => Ok(content),
        }
    }

    async fn content(&self, action: &str, args: Value) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Observation {
            content: String,
        }
        let observation: Observation = self.act(action, args, None).await?;
        Ok(observation.content)
    }

    /// Carries out an action. Sent again only if the server did not get it.
    async fn act<T: serde::de::DeserializeOwned>(
        &self,
        action: &str,
        args: Value,
        timeout: Option<Duration>,
    ) -> Result<T, Error> {
        let mut envelope =
            Map::from_iter([("action".into(), action.into()), ("args".into(), args)]);
        if let Some(timeout) = timeout {
            envelope.insert("timeout".into(), timeout.as_secs_f64().into());
        }
        let body = encode(&json!({"action": envelope}))?;
        let request = || {
            let request = self.request(Method::POST, &["execute_action"], &[])?;
            let request = request
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body.clone());
            Ok(match timeout {
                Some(timeout) => request.timeout(timeout + ANSWER_GRACE),
                None => request,
            })
        };
        let observation: Value =
            http_client::json(self.send(Repeat::Unsent, request).await?).await?;
        if observation["observation"] == "error" {
            return Err(Error::Action(
                observation["content"].as_str().unwrap_or_default().into(),
            ));
        }
        serde_json::from_value(observation)
            .map_err(|error| Error::Protocol(self.info().url.clone(), format!("{action}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::CommandOutput;

    /// The example of `docs/specs/executor.md`, section 3.4.
    #[test]
    fn command_output_is_read_as_specified() {
        let text = r#"{"message":"Command `echo ü` executed with exit code 0.","observation":"run","content":"ü",
            "extras":{"command":"echo ü","metadata":{"exit_code":0,"pid":-1,"username":"root","hostname":"box",
            "working_dir":"/workspace","py_interpreter_path":"/usr/bin/python","prefix":"",
            "suffix":"\n[The command completed with exit code 0.]"},"hidden":false},"success":true}"#;
        let output: CommandOutput = serde_json::from_str(text).unwrap();
        assert_eq!(
            (output.content.as_str(), output.exit_code()),
            ("ü", Some(0))
        );
        assert_eq!(output.working_dir(), Some("/workspace"));
        assert_eq!(
            output.notes().1,
            "[The command completed with exit code 0.]"
        );
    }
}
