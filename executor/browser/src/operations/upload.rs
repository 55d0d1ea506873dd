//! Upload of files: a click that opens a chooser, and the answer to the chooser. The input that the
//! files go to may be hidden, or outside of the document.

use std::io::ErrorKind;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::page::Page;
use super::upload_files::{FoundFile, UploadFiles};
use crate::cdp::CALL_TIMEOUT;
use crate::error::StepError;
use crate::program::{Click, Deferred};
use crate::tabs::{Element, FileChooser, ScriptError};

const METHOD: &str = "FileChooser.set_files";
/// Function that takes all files from a field.
const CLEAR_INPUT: &str = "(input) => {
    input.files = new DataTransfer().files;
    input.dispatchEvent(new Event('input', {bubbles: true, composed: true}));
    input.dispatchEvent(new Event('change', {bubbles: true}));
}";
/// Function that waits for an `input` event of a field.
const AWAIT_INPUT: &str =
    "(input) => new Promise((done) => input.addEventListener('input', () => done(), {once: true}))";

/// Time in which a click must open a chooser.
const CHOOSER_TIMEOUT: Duration = Duration::from_secs(5);

impl Page {
    pub(super) async fn upload(
        &self,
        bid: &str,
        names: Deferred<Vec<String>>,
        files: &UploadFiles,
    ) -> Result<(), StepError> {
        self.tabs.forget_interceptions(&self.tab.id);
        self.click(bid, Ok(Click::default()), 1).await?;
        let chooser = self.tabs.file_chooser(&self.tab.id, CHOOSER_TIMEOUT).await;
        let chooser = chooser.ok_or_else(no_chooser)?;
        let (found, is_directory) = find_all(files, &names?).await?;
        answer(&chooser, &found, is_directory).await
    }
}

fn no_chooser() -> StepError {
    let milliseconds = CHOOSER_TIMEOUT.as_millis();
    let rule = "=".repeat(60);
    let message = format!(
        "Timeout {milliseconds}ms exceeded while waiting for event \"filechooser\"\n\
         =========================== logs ===========================\n\
         waiting for event \"filechooser\"\n{rule}"
    );
    StepError::new("TimeoutError", message)
}

/// The files, and whether they are one directory.
async fn find_all(
    files: &UploadFiles,
    names: &[String],
) -> Result<(Vec<FoundFile>, bool), StepError> {
    let mut found = Vec::new();
    for name in names {
        found.push(files.find(name).await);
    }
    let is_directory = |file: &&FoundFile| matches!(file.is_directory, Ok(true));
    match found.iter().filter(is_directory).count() {
        0 => Ok((found, false)),
        1 if found.len() == 1 => Ok((found, true)),
        1 => Err(StepError::new(
            "Error",
            "File paths must be all files or a single directory",
        )),
        _ => Err(StepError::new(
            "Error",
            "Multiple directories are not supported",
        )),
    }
}

/// Gives a chooser its files, after the checks of the original in their order.
async fn answer(
    chooser: &FileChooser,
    files: &[FoundFile],
    is_directory: bool,
) -> Result<(), StepError> {
    let input = input_of(chooser).await.map_err(|error| failure(&error))?;
    let takes_directory: bool = input
        .call(CALL_TIMEOUT, "(input) => input.webkitdirectory", &[])
        .await
        .map_err(|error| failure(&error))?;
    if files.len() > 1 && !chooser.is_multiple {
        return Err(refusal(
            "Non-multiple file input can only accept single file",
        ));
    }
    if is_directory && !takes_directory {
        return Err(refusal(
            "File input does not support directories, pass individual files instead",
        ));
    }
    if takes_directory && !is_directory {
        return Err(refusal(
            "[webkitdirectory] input requires passing a path to a directory",
        ));
    }
    for file in files {
        let Err(error) = &file.is_directory else {
            continue;
        };
        let what = match error.kind() {
            ErrorKind::PermissionDenied => "EACCES: permission denied",
            _ => "ENOENT: no such file or directory",
        };
        let message = format!("{METHOD}: {what}, access '{}'", file.path.display());
        return Err(StepError::new("Error", message));
    }
    if files.is_empty() {
        let clearing = input.call::<Value>(CALL_TIMEOUT, CLEAR_INPUT, &[]);
        return clearing.await.map(drop).map_err(|error| failure(&error));
    }
    // Chromium lists a directory in its own time.
    let listed = async {
        if is_directory {
            let waiting = input.call::<Value>(CALL_TIMEOUT, AWAIT_INPUT, &[]);
            // The event is not needed, only its time.
            let _ = waiting.await;
        }
    };
    let paths: Vec<_> = files.iter().map(|file| &file.path).collect();
    let params = json!({"files": paths, "backendNodeId": chooser.backend_node_id});
    let session = &chooser.session;
    let setting = session.call::<IgnoredAny>("DOM.setFileInputFiles", params);
    let ((), set) = tokio::join!(listed, setting);
    input.release();
    set.map(drop).map_err(|error| failure(&error.into()))
}

async fn input_of(chooser: &FileChooser) -> Result<Element, ScriptError> {
    #[derive(Deserialize)]
    struct ResolvedNode {
        object: Object,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Object {
        object_id: String,
    }
    let params = json!({"backendNodeId": chooser.backend_node_id});
    let session = chooser.session.clone();
    let node: ResolvedNode = session.call("DOM.resolveNode", params).await?;
    Ok(Element {
        session,
        object_id: node.object.object_id,
    })
}

fn refusal(reason: &str) -> StepError {
    StepError::new("Error", format!("{METHOD}: Error: {reason}"))
}

fn failure(error: &ScriptError) -> StepError {
    StepError::new("Error", format!("{METHOD}: {error}"))
}
