//! Injection of random faults into Pods of the scripted node.

use std::sync::Arc;

use tokio::time::sleep;

use super::chaos::{InjectedFault, PodFailure};
use super::node::ScriptedNode;

impl ScriptedNode {
    /// Injects a fault into the Pod with this uid, when its time has come.
    pub(super) async fn inject(self: Arc<Self>, name: String, uid: String, fault: InjectedFault) {
        match fault {
            InjectedFault::Start(_, None) => {}
            InjectedFault::Start(_, Some(after)) => {
                sleep(after).await;
                self.heal(&name).await;
            }
            InjectedFault::Later(failure, after) => {
                sleep(after).await;
                if self.is_running(&name, &uid) {
                    self.inject_now(&name, failure).await;
                }
            }
        }
    }

    async fn inject_now(&self, name: &str, failure: PodFailure) {
        match failure {
            PodFailure::Crashes => self.restart(name, "Error").await,
            PodFailure::OutOfMemory => self.restart(name, "OOMKilled").await,
            PodFailure::Evicted => self.evict(name).await,
            PodFailure::NodeLost => self.lose_node(name).await,
            PodFailure::Deleted => self.remove(name).await,
        }
    }
}
