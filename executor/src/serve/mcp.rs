//! MCP: the tool servers of the sandbox behind one endpoint (`docs/specs/executor.md`, section 8).
//!
//! Clients post the list of tool servers and then speak MCP with this server, which forwards their
//! requests. A tool server starts with the update that adds it, stops with the update that drops
//! it, and is restarted with a backoff when it ends.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) use self::config::{Config, parse};
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
    /// Those of plugins, which no update removes.
    fixed: Vec<Config>,
    servers: Mutex<BTreeMap<String, Arc<Server>>>,
    pub(super) sessions: Sessions,
    slots: Arc<Semaphore>,
    /// An update has configured at least one server.
    is_offered: AtomicBool,
}

impl Mcp {
    pub(super) fn new(start: LaunchContext, fixed: Vec<Config>) -> Self {
        let mcp = Self {
            start,
            fixed,
            servers: Mutex::default(),
            sessions: Sessions::default(),
            slots: Arc::new(Semaphore::new(MAX_REQUESTS)),
            is_offered: AtomicBool::new(false),
        };
        mcp.replace(mcp.fixed.clone());
        mcp
    }

    pub(super) fn is_offered(&self) -> bool {
        self.is_offered.load(Ordering::Relaxed)
    }

    pub(super) fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Replaces the set of servers: keeps unchanged ones, ends the others and starts new ones.
    /// Returns the errors of servers that cannot start, or have the name of one of a plugin.
    pub(super) async fn update(&self, mut configs: Vec<Config>) -> Vec<String> {
        let before = self.all();
        let fixed = self.fixed.iter().map(|fixed| &fixed.name);
        let fixed: BTreeSet<_> = fixed.collect();
        let mut taken = Vec::new();
        configs.retain(|config| {
            let is_free = !fixed.contains(&config.name);
            if !is_free {
                taken.push(format!("{}: the name is that of a plugin", config.name));
            }
            is_free
        });
        configs.extend(self.fixed.iter().cloned());
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
        let problems = problems.await.into_iter().flatten();
        taken.into_iter().chain(problems).collect()
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
