//! Agent skills: Python functions preloaded in the kernel (`docs/specs/executor.md`, section 5.4).
//!
//! Their edits go to the server over a socket, so that the action `edit` and the skills share one
//! editor with one history.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::OnceCell;
use tokio_util::task::AbortOnDropHandle;

use super::name::PluginName;
use super::plugin::{Health, Plugin, PluginFuture};
use crate::serve::editor::Editor;
use crate::serve::private_dir::PrivateDir;
use crate::serve::shell::LaunchContext;

mod edit_server;

/// Cell that imports the skills.
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
    start: LaunchContext,
    editor: Arc<Editor>,
    installed: OnceCell<InstalledSkills>,
    health: Mutex<Health>,
}

/// Directory of the skills and the task that serves its socket.
#[derive(Debug)]
struct InstalledSkills {
    private: PrivateDir,
    _listening: AbortOnDropHandle<()>,
}

impl AgentSkills {
    pub(super) fn new(start: LaunchContext, editor: Arc<Editor>) -> Self {
        Self {
            start,
            editor,
            installed: OnceCell::new(),
            health: Mutex::default(),
        }
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

    async fn install(&self) -> io::Result<InstalledSkills> {
        let files = |_: &Path| FILES.map(|(name, text)| (name, text.to_vec())).into();
        let identity = &self.start.identity;
        let private = PrivateDir::create(identity, &self.start.working_dir, files).await?;
        let socket = private.directory.join(SOCKET);
        let listener = identity
            .run(move || BlockingListener::bind(socket))
            .await??;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let server = edit_server::EditServer::new(self.start.clone(), Arc::clone(&self.editor));
        Ok(InstalledSkills {
            private,
            _listening: AbortOnDropHandle::new(tokio::spawn(server.serve(listener))),
        })
    }
}

impl Plugin for AgentSkills {
    fn name(&self) -> PluginName {
        PluginName::AgentSkills
    }

    fn start(&self) -> PluginFuture<'_, ()> {
        Box::pin(self.prepare())
    }

    fn stop(&self) -> PluginFuture<'_, ()> {
        Box::pin(async {
            if let Some(installed) = self.installed.get() {
                installed.private.remove().await;
            }
        })
    }

    fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Puts the directory in front of the existing `PYTHONPATH`.
    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let Some(installed) = self.installed.get() else {
            return Vec::new();
        };
        let before = std::env::var_os("PYTHONPATH").filter(|path| !path.is_empty());
        let before: Vec<_> = before.iter().flat_map(std::env::split_paths).collect();
        let all = std::iter::once(installed.private.directory.clone()).chain(before);
        // A path with a colon cannot be in `PYTHONPATH`.
        std::env::join_paths(all)
            .map(|path| vec![("PYTHONPATH", path)])
            .unwrap_or_default()
    }
}
