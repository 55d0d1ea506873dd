//! MCP: the tool servers of the sandbox behind one endpoint (`docs/specs/executor.md`, section 8).
//!
//! Clients post the list of tool servers and then speak MCP with this server, which forwards their
//! requests. A tool server starts with the update that adds it, stops with the update that drops
//! it, and is restarted with a backoff when it ends.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::config::Config;
pub(super) use self::config::parse;
use self::peer::FORWARDED_NOTIFICATIONS;
pub(super) use self::proxy::is_message;
use self::server::Server;
use self::sessions::Sessions;
use super::shell::LaunchContext;

mod config;
mod http;
mod peer;
mod proxy;
mod server;
mod sessions;
mod stdio;

/// Time that an update waits for its servers, to report their errors. Clients wait a minute; a
/// server that is downloaded first may take longer and is not an error.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests of clients in flight.
const MAX_REQUESTS: usize = 256;

/// All tool servers.
#[derive(Debug)]
pub(super) struct Mcp {
    start: LaunchContext,
    servers: Mutex<BTreeMap<String, Arc<Server>>>,
    pub(super) sessions: Sessions,
    slots: Arc<Semaphore>,
    /// An update has configured at least one server.
    is_offered: AtomicBool,
}

impl Mcp {
    pub(super) fn new(start: LaunchContext) -> Self {
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

    pub(super) fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Replaces the set of servers: keeps unchanged ones, ends the others and starts new ones.
    /// Returns the errors of servers that cannot start.
    pub(super) async fn update(&self, configs: Vec<Config>) -> Vec<String> {
        let before = self.all();
        let (current, ended) = self.replace(configs);
        join_all(ended.iter().map(|server| server.end())).await;
        let same = |(one, other): (&Arc<Server>, &Arc<Server>)| Arc::ptr_eq(one, other);
        if before.len() != current.len() || !before.iter().zip(&current).all(same) {
            for kind in FORWARDED_NOTIFICATIONS {
                self.sessions.broadcast(kind);
            }
        }
        let problems = join_all(current.iter().map(async |server| {
            let peer = tokio::time::timeout(UPDATE_TIMEOUT, server.peer()).await;
            Some(format!("{}: {}", server.name(), peer.ok()?.err()?))
        }));
        problems.await.into_iter().flatten().collect()
    }

    fn replace(&self, configs: Vec<Config>) -> (Vec<Arc<Server>>, Vec<Arc<Server>>) {
        let mut servers = self.servers.lock();
        let mut before = std::mem::take(&mut *servers);
        for config in configs {
            let name = config.name.clone();
            let server = match before.entry(name.clone()) {
                Entry::Occupied(same) if same.get().config == config => same.remove(),
                _ => Arc::new(Server::new(
                    config,
                    self.start.clone(),
                    self.sessions.clone(),
                )),
            };
            servers.insert(name, server);
        }
        if !servers.is_empty() {
            self.is_offered.store(true, Ordering::Relaxed);
        }
        let current = servers.values().cloned().collect();
        (current, before.into_values().collect())
    }

    fn all(&self) -> Vec<Arc<Server>> {
        self.servers.lock().values().cloned().collect()
    }

    /// Responds to a message or a batch of a client. Notifications have no response.
    pub(super) async fn answer(&self, message: &Value) -> Option<Value> {
        proxy::answer(&self.all(), message).await
    }

    pub(super) async fn close(&self) {
        self.sessions.close();
        let (_, ended) = self.replace(Vec::new());
        join_all(ended.iter().map(|server| server.end())).await;
    }
}
