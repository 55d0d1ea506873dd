//! `read`, `write`, `edit` and `list_files`: files of a sandbox, with the rights of its user.

use std::time::Duration;

use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Effect, arguments, describe};
use crate::mcp::backend::ToolError;
use crate::mcp::call::{Call, Observation, check_length, content};
use crate::mcp::output::{ToolResult, text, with_images};

const MAX_PATH_BYTES: usize = 4096;
const MAX_CONTENT_BYTES: usize = 1 << 20;
/// Time for an action on files.
const FILE_TIMEOUT: Duration = Duration::from_mins(1);
/// Beginning of the content of an edit that failed (`docs/specs/executor.md`, section 6.4).
const EDIT_ERROR: &str = "ERROR:\n";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    sandbox: String,
    /// Absolute path, for example /workspace/main.py.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// First line, from 1. Default: the first.
    #[serde(default)]
    #[schemars(range(min = 1))]
    first_line: Option<u32>,
    /// Last line, included. Default: the last.
    #[serde(default)]
    #[schemars(range(min = 1))]
    last_line: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Write {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    sandbox: String,
    /// Absolute path, for example /workspace/main.py. Missing directories are created.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// The whole text of the file, which ends with a newline in any case.
    #[schemars(length(max = 1_048_576))]
    content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    sandbox: String,
    /// Absolute path of an existing file.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// Text to replace, exactly as in the file, with blanks and newlines. It must occur once: include
    /// enough lines around it.
    #[schemars(length(min = 1, max = 1_048_576))]
    old: String,
    /// Text in its place. Empty: remove it.
    #[schemars(length(max = 1_048_576))]
    new: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    /// Name of the sandbox, as returned by create.
    #[schemars(length(min = 1, max = 256))]
    sandbox: String,
    /// Absolute path of a directory. Default: /workspace.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    path: Option<String>,
}

pub(super) fn tools() -> [Tool; 4] {
    [
        describe::<Read>(
            "read",
            "Read a file",
            "Reads a text file of a sandbox, or an image (png, jpg, gif, bmp). Long text is cut in the middle: then read \
             a range of lines.",
            Effect::Reads,
        ),
        describe::<Write>(
            "write",
            "Write a file",
            "Writes a whole text file in a sandbox, in place of the one that is there. Use edit to change a part.",
            Effect::Changes,
        ),
        describe::<Edit>(
            "edit",
            "Edit a file",
            "Replaces a text that occurs once in a file of a sandbox, and returns the lines around the change.",
            Effect::Changes,
        ),
        describe::<ListFiles>(
            "list_files",
            "List files",
            "Lists a directory of a sandbox: directories first, with a slash at the end. A directory that does not exist \
             looks empty.",
            Effect::Reads,
        ),
    ]
}

pub(super) async fn read(call: &Call, given: JsonObject) -> ToolResult {
    let Read {
        sandbox,
        path,
        first_line,
        last_line,
    } = arguments(given)?;
    let (first, last) = (first_line.unwrap_or(1), last_line.map_or(-1, i64::from));
    if first == 0 || last == 0 || (last > 0 && last < i64::from(first)) {
        return Err(ToolError(
            "lines count from 1, and last_line must not precede first_line".into(),
        ));
    }
    // The server counts from 0 and excludes the end.
    let args = json!({"path": path, "start": first - 1, "end": last});
    let file = act(call, &sandbox, "read", &path, args).await?;
    if file.content.starts_with("data:") {
        return Ok(with_images(&path, &[file.content]));
    }
    Ok(text(&file.content))
}

pub(super) async fn write(call: &Call, given: JsonObject) -> ToolResult {
    let Write {
        sandbox,
        path,
        content,
    } = arguments(given)?;
    check_length("content", &content, MAX_CONTENT_BYTES)?;
    // The server ends each line, the last one too.
    let lines = content.strip_suffix('\n').unwrap_or(&content);
    act(
        call,
        &sandbox,
        "write",
        &path,
        json!({"path": path, "content": lines}),
    )
    .await?;
    Ok(text(&format!("wrote {path}")))
}

pub(super) async fn edit(call: &Call, given: JsonObject) -> ToolResult {
    let Edit {
        sandbox,
        path,
        old,
        new,
    } = arguments(given)?;
    check_length("old", &old, MAX_CONTENT_BYTES)?;
    check_length("new", &new, MAX_CONTENT_BYTES)?;
    let args = json!({
        "path": path, "command": "str_replace", "old_str": old, "new_str": new, "impl_source": "oh_aci",
    });
    let edited = act(call, &sandbox, "edit", &path, args).await?;
    match edited.content.strip_prefix(EDIT_ERROR) {
        Some(error) => Err(ToolError(error.to_owned())),
        None => Ok(text(&edited.content)),
    }
}

pub(super) async fn list(call: &Call, given: JsonObject) -> ToolResult {
    let ListFiles { sandbox, path } = arguments(given)?;
    let path = path.unwrap_or_else(|| "/workspace".into());
    check_length("path", &path, MAX_PATH_BYTES)?;
    let sandbox = call.find(&sandbox).await?;
    let body = json!({"path": path});
    let names: Vec<String> = call
        .post(&sandbox, "/list_files", &body, FILE_TIMEOUT)
        .await?;
    if names.is_empty() {
        return Ok(text(&format!("{path} is empty or is not a directory")));
    }
    Ok(text(&names.join("\n")))
}

async fn act(
    call: &Call,
    sandbox: &str,
    action: &str,
    path: &str,
    args: Value,
) -> Result<Observation, ToolError> {
    check_length("path", path, MAX_PATH_BYTES)?;
    let sandbox = call.find(sandbox).await?;
    content(call.act(&sandbox, action, &args, FILE_TIMEOUT).await?)
}
