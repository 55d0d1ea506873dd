//! What an installation decides for all its sandboxes.

mod pods;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::sandbox::Lifecycle;

use crate::index::Entry;
use crate::kubernetes::leader::Candidacy;
use crate::tenants::Tenants;
use crate::urls::Urls;
use crate::vitals::Vitals;

pub use pods::{ConfigMapMount, Injection, PodSettings};

/// Configuration of the controller.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// Namespace to serve; `None` for all.
    pub namespace: Option<String>,
    /// Image that brings the executor binary into every supervised Pod.
    pub executor_image: String,
    pub urls: Urls,
    pub defaults: Defaults,
    pub pods: PodSettings,
    pub classes: ClassPolicy,
    /// Whether commands that are the Python action execution server are replaced by the native one.
    pub native_executor: bool,
    /// Images that start as root and need the capabilities of `sudo`: patterns in which `*` stands
    /// for any text.
    pub sudo_images: Vec<String>,
    /// Lease to be won before acting; `None` for the only controller of a cluster.
    pub leader: Option<Candidacy>,
    /// Whose sandboxes they are, and how much each may use.
    pub tenants: Tenants,
    /// Where the controller tells how it is.
    pub vitals: Arc<Vitals>,
}

/// What holds where neither a Sandbox nor its pool says anything.
#[derive(Debug, Clone)]
pub struct Defaults {
    pub requests: BTreeMap<String, String>,
    pub limits: BTreeMap<String, String>,
    /// Highest `resourceFactor` that takes effect.
    pub max_factor: f64,
    /// The most that one sandbox gets of a resource, whatever it asks for.
    pub most: BTreeMap<String, String>,
    pub runtime_class_name: Option<String>,
    pub lifecycle: Deadlines,
}

/// What runtime classes mean (runtime API spec 7.21).
#[derive(Debug, Clone, Default)]
pub struct ClassPolicy {
    /// The class that `gvisor` stands for.
    pub gvisor: Option<String>,
    /// Whether a class that the cluster lacks is refused; otherwise the default takes its place.
    pub strict: bool,
}

/// Deadlines of one sandbox, all decided; `None` is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Told to the sandbox, so that it does not start what would be cut off.
    pub idle_timeout: Option<Duration>,
    pub max_run_time: Option<Duration>,
    pub start_timeout: Option<Duration>,
    pub delete_paused_after: Option<Duration>,
    pub delete_stopped_after: Option<Duration>,
}

impl ControllerConfig {
    /// The defaults of an installation whose sandboxes have these URLs.
    pub fn new(urls: Urls) -> Self {
        Self {
            namespace: None,
            executor_image: "localhost/sandbox-executor:dev".into(),
            urls,
            defaults: Defaults::default(),
            pods: PodSettings::default(),
            classes: ClassPolicy::default(),
            native_executor: true,
            sudo_images: Vec::new(),
            leader: None,
            tenants: Tenants::fixed([]),
            vitals: Arc::default(),
        }
    }

    /// The URLs of a sandbox, in the form that its tenant is told.
    pub fn urls(&self, entry: &Entry) -> Cow<'_, Urls> {
        let tenant = entry.session().map_or("", |s| s.tenant.as_str());
        self.tenants.urls(&self.urls, tenant)
    }
}

impl Default for Defaults {
    fn default() -> Self {
        // A limit of its own keeps a sandbox from filling the node's disk; nothing is reserved.
        let map = |cpu: &str, memory: &str, disk: &str| {
            let amounts = [
                ("cpu", cpu),
                ("memory", memory),
                ("ephemeral-storage", disk),
            ];
            BTreeMap::from(amounts.map(|(name, amount)| (name.to_owned(), amount.to_owned())))
        };
        Self {
            requests: map("250m", "512Mi", "0"),
            limits: map("2", "2Gi", "10Gi"),
            max_factor: 8.0,
            most: BTreeMap::new(),
            runtime_class_name: None,
            lifecycle: Deadlines::default(),
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_hours(1);
        Self {
            idle_timeout: None,
            max_run_time: None,
            start_timeout: Some(Duration::from_mins(15)),
            delete_paused_after: None,
            delete_stopped_after: Some(24 * HOUR),
        }
    }
}

impl Deadlines {
    /// These, with what `lifecycle` says instead. There, zero means never.
    #[must_use]
    pub fn overridden(self, lifecycle: Option<&Lifecycle>) -> Self {
        let Some(l) = lifecycle else {
            return self;
        };
        let pick = |own: Option<crds::duration::Duration>, default| match own.map(Duration::from) {
            Some(Duration::ZERO) => None,
            Some(own) => Some(own),
            None => default,
        };
        Self {
            idle_timeout: pick(l.idle_timeout, self.idle_timeout),
            max_run_time: pick(l.max_run_time, self.max_run_time),
            start_timeout: pick(l.start_timeout, self.start_timeout),
            delete_paused_after: pick(l.delete_paused_after, self.delete_paused_after),
            delete_stopped_after: pick(l.delete_stopped_after, self.delete_stopped_after),
        }
    }
}
