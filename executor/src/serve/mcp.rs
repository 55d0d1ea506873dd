//! MCP: the sandbox's tool servers, offered to clients as one (spec 8).
//!
//! Clients post which servers there shall be and then speak MCP with this server, which passes
//! their requests on. Servers start with the update that names them, stay while they are named,
//! and are started again, ever more slowly, when they end.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use self::config::Config;
pub(super) use self::config::parse;
use self::peer::CHANGES;
pub(super) use self::proxy::{answer, is_message};
use self::server::Server;
use self::sessions::Sessions;
use super::shell::Start;

mod config;
mod events;
mod http;
mod peer;
mod proxy;
mod server;
mod sessions;
mod stdio;

/// What an update waits for its servers, so that it can tell what is wrong with them. A client waits
/// a minute; a server that is downloaded first may take longer, and simply is not there yet.
const LOOK: Duration = Duration::from_secs(5);
/// Requests of clients under way.
const MAX_REQUESTS: usize = 256;

/// All tool servers.
#[derive(Debug)]
pub(super) struct Mcp {
    start: Start,
    servers: Mutex<BTreeMap<String, Arc<Server>>>,
    pub(super) sessions: Sessions,
    slots: Arc<Semaphore>,
    /// There has been an update with servers.
    is_offered: AtomicBool,
}

impl Mcp {
    pub(super) fn new(start: Start) -> Self {
        Self {
            start,
            servers: Mutex::default(),
            sessions: Sessions::default(),
            slots: Arc::new(Semaphore::new(MAX_REQUESTS)),
            is_offered: AtomicBool::new(false),
        }
    }

    pub(super) fn is_offered(&self) -> bool {
        self.is_offered.load(Ordering::Relaxed)
    }

    /// Room for a request of a client, if there is any.
    pub(super) fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Makes these the servers: keeps those that are the same, ends the others, starts new ones.
    /// What is wrong with those that cannot start, a line each.
    pub(super) async fn update(&self, configs: Vec<Config>) -> String {
        let before = self.all();
        let (current, ended) = self.replace(configs);
        end_all(ended).await;
        let same = |(one, other): (&Arc<Server>, &Arc<Server>)| Arc::ptr_eq(one, other);
        if before.len() != current.len() || !before.iter().zip(&current).all(same) {
            for kind in CHANGES {
                self.sessions.tell(kind);
            }
        }
        let problems = together(current.into_iter().map(|server| async move {
            let problem = tokio::time::timeout(LOOK, server.peer())
                .await
                .ok()?
                .err()?;
            Some(format!("{}: {problem}", server.name()))
        }));
        let problems: Vec<_> = problems.await.into_iter().flatten().collect();
        problems.join("\n")
    }

    fn replace(&self, configs: Vec<Config>) -> (Vec<Arc<Server>>, Vec<Arc<Server>>) {
        let mut servers = self.servers.lock();
        let mut before = std::mem::take(&mut *servers);
        for config in configs {
            let name = config.name.clone();
            let same = before
                .get(&name)
                .is_some_and(|server| *server.config() == config);
            let server = same.then(|| before.remove(&name)).flatten();
            let new = || Server::new(config, self.start.clone(), self.sessions.clone());
            let server = server.unwrap_or_else(|| Arc::new(new()));
            servers.insert(name, server);
        }
        if !servers.is_empty() {
            self.is_offered.store(true, Ordering::Relaxed);
        }
        (
            servers.values().cloned().collect(),
            before.into_values().collect(),
        )
    }

    fn all(&self) -> Vec<Arc<Server>> {
        self.servers.lock().values().cloned().collect()
    }

    pub(super) async fn close(&self) {
        self.sessions.close();
        let (_, ended) = self.replace(Vec::new());
        end_all(ended).await;
    }
}

async fn end_all(servers: Vec<Arc<Server>>) {
    together(
        servers
            .into_iter()
            .map(|server| async move { server.end().await }),
    )
    .await;
}

/// Does several things at once; what came of them, in their order.
async fn together<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    works: impl Iterator<Item = F>,
) -> Vec<T> {
    let works: Vec<_> = works
        .map(|work| AbortOnDropHandle::new(tokio::spawn(work)))
        .collect();
    let mut results = Vec::new();
    for work in works {
        results.extend(work.await);
    }
    results
}
