//! Agent skills: Python functions that the kernel knows from its start (spec 5.4), from files that
//! the executor carries.
//!
//! Edits among them come back to the server over a socket, so that there is one editor with one
//! history, whichever way an agent takes to it.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::OnceCell;
use tokio_util::task::AbortOnDropHandle;

use super::{Health, Name, Plugin, Work};
use crate::serve::editor::Editor;
use crate::serve::private::Private;
use crate::serve::shell::Start;

mod edits;

/// The cell that makes the skills known.
pub(super) const IMPORT: &str = "from agentskills import *";
const FILES: [(&str, &[u8]); 4] = [
    (
        "agentskills.py",
        include_bytes!("../../../skills/agentskills.py"),
    ),
    (
        "agentskills_files.py",
        include_bytes!("../../../skills/agentskills_files.py"),
    ),
    (
        "agentskills_documents.py",
        include_bytes!("../../../skills/agentskills_documents.py"),
    ),
    (
        "agentskills_models.py",
        include_bytes!("../../../skills/agentskills_models.py"),
    ),
];
const SOCKET: &str = "editor.sock";

#[derive(Debug)]
pub(super) struct AgentSkills {
    start: Start,
    editor: Arc<Editor>,
    place: OnceCell<Place>,
    health: Mutex<Health>,
}

/// Where the files are, and who listens there.
#[derive(Debug)]
struct Place {
    private: Private,
    _listening: AbortOnDropHandle<()>,
}

impl AgentSkills {
    pub(super) fn new(start: Start, editor: Arc<Editor>) -> Self {
        Self {
            start,
            editor,
            place: OnceCell::new(),
            health: Mutex::default(),
        }
    }

    /// Puts the files where the kernel finds them, once.
    pub(super) async fn prepare(&self) {
        let prepared = self.place.get_or_try_init(|| self.settle()).await;
        *self.health.lock() = match prepared {
            Ok(_) => Health::Ready,
            Err(error) => {
                tracing::warn!(%error, "cannot put down the agent skills");
                Health::Failed(error.to_string())
            }
        };
    }

    async fn settle(&self) -> io::Result<Place> {
        let files = |_: &Path| FILES.map(|(name, text)| (name, text.to_vec())).into();
        let identity = &self.start.identity;
        let private = Private::create(identity, &self.start.working_dir, files).await?;
        let socket = private.directory.join(SOCKET);
        let listener = identity
            .run(move || BlockingListener::bind(socket))
            .await??;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let desk = edits::Desk::new(self.start.clone(), Arc::clone(&self.editor));
        Ok(Place {
            private,
            _listening: AbortOnDropHandle::new(tokio::spawn(desk.serve(listener))),
        })
    }
}

impl Plugin for AgentSkills {
    fn name(&self) -> Name {
        Name::AgentSkills
    }

    fn start(&self) -> Work<'_, ()> {
        Box::pin(self.prepare())
    }

    fn stop(&self) -> Work<'_, ()> {
        Box::pin(async {
            if let Some(place) = self.place.get() {
                place.private.remove().await;
            }
        })
    }

    fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Python looks for modules here first; what was there stays.
    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let Some(place) = self.place.get() else {
            return Vec::new();
        };
        let before = std::env::var_os("PYTHONPATH").filter(|path| !path.is_empty());
        let before: Vec<_> = before.iter().flat_map(std::env::split_paths).collect();
        let all = std::iter::once(place.private.directory.clone()).chain(before);
        // A directory whose name cannot be in a list is none that can be imported from.
        std::env::join_paths(all)
            .map(|path| vec![("PYTHONPATH", path)])
            .unwrap_or_default()
    }
}
