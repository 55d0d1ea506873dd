//! Server for the edits of `file_editor` in the skills: one JSON object per connection and
//! direction.
//!
//! The socket is in a directory of the sandbox user. A process that can connect has the same access
//! to the files anyway.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::serve::action::{Edit, LineNumber};
use crate::serve::editor::{EditError, Edited, Editor};
use crate::serve::shell::LaunchContext;

/// Limit of a request in bytes; it may contain a file.
const MAX_REQUEST: u64 = 64 << 20;
/// Concurrent edits; further ones wait.
const MAX_EDITS: usize = 4;

#[derive(Debug)]
pub(super) struct EditServer {
    start: LaunchContext,
    editor: Arc<Editor>,
    slots: Arc<Semaphore>,
}

/// Arguments of `file_editor`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EditRequest {
    command: String,
    path: String,
    file_text: Option<String>,
    old_str: Option<String>,
    new_str: Option<String>,
    insert_line: Option<Value>,
    view_range: Option<Value>,
}

/// Result of an edit, with the keys of the Python server.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum EditResponse {
    Edited {
        output: String,
        error: Option<String>,
        path: String,
        prev_exist: bool,
        old_content: Option<String>,
        new_content: Option<String>,
        formatted_output_and_error: String,
    },
    Refused {
        output: Option<String>,
        error: String,
        formatted_output_and_error: String,
    },
}

impl EditServer {
    pub(super) fn new(start: LaunchContext, editor: Arc<Editor>) -> Self {
        Self {
            start,
            editor,
            slots: Arc::new(Semaphore::new(MAX_EDITS)),
        }
    }

    pub(super) async fn serve(self, listener: UnixListener) {
        let server = Arc::new(self);
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(slot) = Arc::clone(&server.slots).acquire_owned().await else {
                return;
            };
            let server = Arc::clone(&server);
            // Ends with the edit or with the kernel.
            tokio::spawn(async move {
                let _slot = slot;
                if let Err(error) = server.handle_connection(stream).await {
                    tracing::debug!(%error, "an edit of a skill was aborted");
                }
            });
        }
    }

    async fn handle_connection(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut request = Vec::new();
        let (mut from, mut to) = stream.split();
        (&mut from)
            .take(MAX_REQUEST)
            .read_to_end(&mut request)
            .await?;
        let answer = match serde_json::from_slice(&request) {
            Ok(request) => self.edit(request).await?,
            Err(error) => EditResponse::refuse(&error.to_string()),
        };
        to.write_all(&serde_json::to_vec(&answer)?).await
    }

    async fn edit(&self, request: EditRequest) -> io::Result<EditResponse> {
        let edit = request.into_edit();
        let path = edit.path.clone();
        let creates = edit.command == "create";
        let editor = Arc::clone(&self.editor);
        let working_dir = self.start.working_dir.clone();
        // A view needs no lock.
        let lock = (edit.command != "view").then(|| self.editor.write_lock());
        let _lock = match lock {
            Some(lock) => Some(lock.await),
            None => None,
        };
        let edited = self
            .start
            .identity
            .run(move || run(&editor, &edit, &working_dir))
            .await?;
        Ok(match edited {
            Ok(edited) => EditResponse::tell(path, !creates, edited),
            Err(error) => EditResponse::refuse(&error.to_string()),
        })
    }
}

fn run(editor: &Editor, edit: &Edit, working_dir: &Path) -> Result<Edited, EditError> {
    editor.run(edit, working_dir)
}

impl EditRequest {
    fn into_edit(self) -> Edit {
        let line = self.insert_line.map(|line| match line {
            Value::String(text) => LineNumber::Text(text),
            other => other
                .as_i64()
                .map_or_else(|| LineNumber::Text(other.to_string()), LineNumber::Number),
        });
        Edit {
            command: self.command,
            path: self.path,
            file_text: self.file_text,
            old_str: self.old_str,
            new_str: self.new_str,
            insert_line: line,
            view_range: self.view_range,
        }
    }
}

impl EditResponse {
    fn tell(path: String, prev_exist: bool, edited: Edited) -> Self {
        Self::Edited {
            formatted_output_and_error: edited.content.clone(),
            output: edited.content,
            error: None,
            path,
            prev_exist,
            old_content: edited.old,
            new_content: edited.new,
        }
    }

    fn refuse(error: &str) -> Self {
        Self::Refused {
            output: None,
            error: error.to_owned(),
            formatted_output_and_error: format!("ERROR:\n{error}"),
        }
    }
}
