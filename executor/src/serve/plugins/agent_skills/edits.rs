//! The desk where `file_editor` of the skills hands in its edits: one JSON object per connection,
//! answered with one. The socket lies in a directory of the sandbox user, so whoever reaches it may
//! do the same to the files directly.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::serve::action::{Edit, Line};
use crate::serve::editor::{EditError, Edited, Editor};
use crate::serve::shell::Start;

/// Bytes of a request: files travel inside.
const MAX_REQUEST: u64 = 64 << 20;
/// Edits at once; more wait.
const MAX_EDITS: usize = 4;

#[derive(Debug)]
pub(super) struct Desk {
    start: Start,
    editor: Arc<Editor>,
    slots: Arc<Semaphore>,
}

/// The arguments of `file_editor`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Request {
    command: String,
    path: String,
    file_text: Option<String>,
    old_str: Option<String>,
    new_str: Option<String>,
    insert_line: Option<Value>,
    view_range: Option<Value>,
}

/// What `file_editor` tells about an edit, key by key.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Answer {
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

impl Desk {
    pub(super) fn new(start: Start, editor: Arc<Editor>) -> Self {
        Self {
            start,
            editor,
            slots: Arc::new(Semaphore::new(MAX_EDITS)),
        }
    }

    pub(super) async fn serve(self, listener: UnixListener) {
        let desk = Arc::new(self);
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(slot) = Arc::clone(&desk.slots).acquire_owned().await else {
                return;
            };
            let desk = Arc::clone(&desk);
            // Ends with the edit, or when the kernel has ended.
            tokio::spawn(async move {
                let _slot = slot;
                if let Err(error) = desk.attend(stream).await {
                    tracing::debug!(%error, "an edit of a skill broke off");
                }
            });
        }
    }

    async fn attend(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut request = Vec::new();
        let (mut from, mut to) = stream.split();
        (&mut from)
            .take(MAX_REQUEST)
            .read_to_end(&mut request)
            .await?;
        let answer = match serde_json::from_slice(&request) {
            Ok(request) => self.edit(request).await?,
            Err(error) => Answer::refuse(&error.to_string()),
        };
        to.write_all(&serde_json::to_vec(&answer)?).await
    }

    async fn edit(&self, request: Request) -> io::Result<Answer> {
        let edit = request.into_edit();
        let path = edit.path.clone();
        let creates = edit.command == "create";
        let editor = Arc::clone(&self.editor);
        let working_dir = self.start.working_dir.clone();
        // A view waits for nobody.
        let turn = (edit.command != "view").then(|| self.editor.turn());
        let _turn = match turn {
            Some(turn) => Some(turn.await),
            None => None,
        };
        let edited = self
            .start
            .identity
            .run(move || run(&editor, &edit, &working_dir))
            .await?;
        Ok(match edited {
            Ok(edited) => Answer::tell(path, !creates, edited),
            Err(error) => Answer::refuse(&error.to_string()),
        })
    }
}

fn run(editor: &Editor, edit: &Edit, working_dir: &Path) -> Result<Edited, EditError> {
    editor.run(edit, working_dir)
}

impl Request {
    fn into_edit(self) -> Edit {
        let line = self.insert_line.map(|line| match line {
            Value::String(text) => Line::Text(text),
            other => other
                .as_i64()
                .map_or_else(|| Line::Text(other.to_string()), Line::Number),
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

impl Answer {
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
