//! Isolation of the namespaces that have sandboxes: the `NetworkPolicy` of the installation exists
//! in each of them before its first Pod. The chart passes the same content that it renders itself.

use crds::names;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;

use shared::kubernetes::client::with_timeout;
use shared::kubernetes::owned_objects::{CreateError, classify_error};
use shared::recent_map::RecentMap;

/// Name of the `NetworkPolicy` in every namespace.
const POLICY_NAME: &str = "sandbox-operator-isolation";
/// A policy that was changed by hand is restored by the first reconcile after this time.
const RECHECK_INTERVAL: SignedDuration = SignedDuration::from_mins(1);
/// Namespaces whose last check is remembered. Others are checked at every reconcile.
const MAX_NAMESPACES: usize = 10_000;

/// `NetworkPolicy` of the installation, and the time of its last check by namespace.
#[derive(Debug)]
pub(crate) struct Isolation {
    policy: Option<NetworkPolicySpec>,
    checked_at: Mutex<RecentMap<String, Timestamp, MAX_NAMESPACES>>,
}

impl Isolation {
    /// `None` isolates nothing: the chart, or the administrator, does.
    pub(crate) fn new(policy: Option<NetworkPolicySpec>) -> Self {
        Self {
            policy,
            checked_at: Mutex::default(),
        }
    }

    /// Returns whether the policy of a namespace has to be checked.
    pub(crate) fn is_due(&self, namespace: &str, now: Timestamp) -> bool {
        let checked = self.checked_at.lock().get(namespace).copied();
        let is_recent = |at: Timestamp| now.duration_since(at).abs() < RECHECK_INTERVAL;
        self.policy.is_some() && !checked.is_some_and(is_recent)
    }

    /// Creates or restores the policy of a namespace. An unchanged one is not written.
    pub(crate) async fn ensure(
        &self,
        api: &Api<NetworkPolicy>,
        namespace: &str,
        now: Timestamp,
    ) -> Result<(), CreateError> {
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {
                "name": POLICY_NAME,
                "labels": {names::MANAGED_BY_LABEL: names::CONTROLLER_FIELD_MANAGER},
            },
            "spec": self.policy,
        });
        let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER).force();
        with_timeout(api.patch(POLICY_NAME, &params, &Patch::Apply(&policy)))
            .await
            .map_err(classify_error)?;
        self.checked_at.lock().insert(namespace.to_owned(), now);
        Ok(())
    }
}
