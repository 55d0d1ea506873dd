//! Agent skills: Python functions preloaded in the kernel (`docs/specs/executor.md`, section 5.4).
//!
//! Their edits go to the server over a socket, so that the action `edit` and the skills share one
//! editor with one history.

use std::io;
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::OnceCell;
use tokio_util::task::AbortOnDropHandle;

use super::Health;
use crate::serve::editor::Editor;
use crate::serve::private_dir::PrivateDir;
use crate::serve::shell::LaunchContext;

mod edit_server;

/// Cell that imports the skills.
pub(super) const IMPORT: &str = "from agentskills import *";
const SOCKET: &str = "editor.sock";

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

#[derive(Debug)]
pub(super) struct AgentSkills {
    start: Arc<Mutex<LaunchContext>>,
    editor: Arc<Editor>,
    /// Directory of the skills and the task that serves its socket.
    installed: OnceCell<(PrivateDir, AbortOnDropHandle<()>)>,
    health: Mutex<Health>,
}

impl AgentSkills {
    pub(super) fn new(start: LaunchContext, editor: Arc<Editor>) -> Self {
        Self {
            start: Arc::new(Mutex::new(start)),
            editor,
            installed: OnceCell::new(),
            health: Mutex::default(),
        }
    }

    /// Continues in another directory. Returns false if the user is another one.
    pub(super) fn resume(&self, start: &LaunchContext) -> bool {
        let mut current = self.start.lock();
        let is_same_user = Arc::ptr_eq(&current.identity, &start.identity);
        if is_same_user {
            current.clone_from(start);
        }
        is_same_user
    }

    /// Installs the files, once.
    pub(super) async fn prepare(&self) {
        let prepared = self.installed.get_or_try_init(|| self.install()).await;
        *self.health.lock() = match prepared {
            Ok(_) => Health::Ready,
            Err(error) => {
                tracing::warn!(%error, "cannot install the agent skills");
                Health::Failed(error.to_string())
            }
        };
    }

    async fn install(&self) -> io::Result<(PrivateDir, AbortOnDropHandle<()>)> {
        let files = |_: &Path| FILES.map(|(name, text)| (name, text.to_vec())).into();
        let start = self.start.lock().clone();
        let identity = &start.identity;
        let private = PrivateDir::create(identity, &start.working_dir, files).await?;
        let socket = private.directory.join(SOCKET);
        let listener = identity
            .run(move || BlockingListener::bind(socket))
            .await??;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let serving =
            edit_server::serve(listener, Arc::clone(&self.start), Arc::clone(&self.editor));
        Ok((private, AbortOnDropHandle::new(tokio::spawn(serving))))
    }

    pub(super) async fn stop(&self) {
        if let Some((private, _)) = self.installed.get() {
            private.remove().await;
        }
    }

    pub(super) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Directory that the kernel imports the skills from, once it is installed.
    pub(super) fn directory(&self) -> Option<&Path> {
        Some(&self.installed.get()?.0.directory)
    }
}
