//! Server for the edits of `file_editor` in the skills: one JSON object per connection and
//! direction.
//!
//! The socket is in a directory of the sandbox user. A process that can connect has the same access
//! to the files anyway.

use std::io;
use std::sync::Arc;

use futures::future::OptionFuture;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::serve::action::Edit;
use crate::serve::editor::Editor;
use crate::serve::shell::LaunchContext;

/// Limit of a request in bytes; it may contain a file.
const MAX_REQUEST: u64 = 64 << 20;
/// Concurrent edits; further ones wait.
const MAX_EDITS: usize = 4;

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

pub(super) async fn serve(
    listener: UnixListener,
    start: Arc<Mutex<LaunchContext>>,
    editor: Arc<Editor>,
) {
    let slots = Arc::new(Semaphore::new(MAX_EDITS));
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let (start, editor) = (start.lock().clone(), Arc::clone(&editor));
        // Ends with the edit or with the kernel.
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = handle_connection(stream, &start, editor).await {
                tracing::debug!(%error, "an edit of a skill was aborted");
            }
        });
    }
}

async fn handle_connection(
    mut stream: UnixStream,
    start: &LaunchContext,
    editor: Arc<Editor>,
) -> io::Result<()> {
    let mut request = Vec::new();
    let (from, mut to) = stream.split();
    from.take(MAX_REQUEST).read_to_end(&mut request).await?;
    let response = match serde_json::from_slice(&request) {
        Ok(edit) => run(edit, start, editor).await?,
        Err(error) => EditResponse::refuse(&error.to_string()),
    };
    to.write_all(&serde_json::to_vec(&response)?).await
}

async fn run(edit: Edit, start: &LaunchContext, editor: Arc<Editor>) -> io::Result<EditResponse> {
    let path = edit.path.clone();
    let prev_exist = edit.command != "create";
    let working_dir = start.working_dir.clone();
    let changing = Arc::clone(&editor);
    // A view needs no lock.
    let lock = (edit.command != "view").then(|| changing.write_lock());
    let _lock = OptionFuture::from(lock).await;
    let edited = start.identity.run(move || editor.run(&edit, &working_dir));
    Ok(match edited.await? {
        Ok(edited) => EditResponse::Edited {
            formatted_output_and_error: edited.content.clone(),
            output: edited.content,
            error: None,
            path,
            prev_exist,
            old_content: edited.old,
            new_content: edited.new,
        },
        Err(error) => EditResponse::refuse(&error.to_string()),
    })
}

impl EditResponse {
    fn refuse(error: &str) -> Self {
        Self::Refused {
            output: None,
            error: error.to_owned(),
            formatted_output_and_error: format!("ERROR:\n{error}"),
        }
    }
}
