//! Features of new Pods that depend on the cluster: those that a probe has shown to work.

use std::sync::atomic::{AtomicBool, Ordering};

use crds::contract::persistence::RootMechanism;
use k8s_openapi::api::core::v1::PodSpec;
use shared::runtime_class;

use crate::config::{Injection, RootPersistence, UserNamespaces};
use crate::rejected_persistence::RejectedPersistence;

/// Features that a Pod is built with. `Auto` means: known to work, and used where it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PodFeatures {
    pub injection: Injection,
    pub user_namespaces: UserNamespaces,
    /// Choice of the mechanism by which new volumes keep files outside of the workspace.
    pub root_persistence: RootPersistence,
    /// Persistence that the policies of the namespace have rejected.
    pub rejected: RejectedPersistence,
}

impl PodFeatures {
    /// Mechanism of new volumes. `None`: they keep the workspace only.
    pub(crate) fn root(self) -> Option<RootMechanism> {
        let has_namespace = self.user_namespaces != UserNamespaces::Never;
        match self.root_persistence {
            RootPersistence::None => None,
            RootPersistence::Node => Some(RootMechanism::Node),
            RootPersistence::Auto | RootPersistence::Overlay
                if has_namespace && !self.rejected.overlay =>
            {
                Some(RootMechanism::Overlay)
            }
            RootPersistence::Archive | RootPersistence::Overlay | RootPersistence::Auto => {
                Some(RootMechanism::Archive)
            }
        }
    }

    /// The features that neither a probe nor a policy changes. Shapes of warm Pods are made with
    /// them, so that neither a verdict nor another leader replaces warm Pods.
    pub(crate) fn unprobed(self) -> Self {
        Self {
            injection: Injection::InitContainer,
            user_namespaces: self.user_namespaces.unless_auto(),
            root_persistence: self.root_persistence.unless_auto(),
            rejected: RejectedPersistence::default(),
        }
    }

    /// The features that fit this Pod: a runtime class may be a virtual machine. A Pod in host
    /// namespaces or with block devices cannot have its own users, and NFS cannot be mapped to them.
    pub(crate) fn fitting(self, pod: &PodSpec) -> Self {
        let class = pod.runtime_class_name.as_deref();
        let is_vm = class.is_some_and(|class| !runtime_class::shares_kernel(class));
        let host = [pod.host_network, pod.host_pid, pod.host_ipc].contains(&Some(true));
        let has_nfs = pod.volumes.iter().flatten().any(|it| it.nfs.is_some());
        let inits = pod.init_containers.iter().flatten();
        let mut containers = pod.containers.iter().chain(inits);
        let has_devices = containers.any(|it| it.volume_devices.is_some());
        let injection = match self.injection {
            Injection::Auto if is_vm => Injection::InitContainer,
            other => other,
        };
        let user_namespaces = if is_vm || host || has_nfs || has_devices {
            self.user_namespaces.unless_auto()
        } else {
            self.user_namespaces
        };
        Self {
            injection,
            user_namespaces,
            ..self
        }
    }

    /// Value of `hostUsers` of the Pod.
    pub(crate) fn host_users(self) -> Option<bool> {
        (self.user_namespaces != UserNamespaces::Never).then_some(false)
    }
}

/// A setting with the value `Auto`, which a probe decides on.
pub(crate) trait AutoSetting: Copy {
    /// The value that `Auto` stands for where the probe has not shown that the feature works.
    fn unless_auto(self) -> Self;
}

impl AutoSetting for RootPersistence {
    fn unless_auto(self) -> Self {
        match self {
            Self::Auto => Self::Archive,
            other => other,
        }
    }
}

impl AutoSetting for UserNamespaces {
    fn unless_auto(self) -> Self {
        match self {
            Self::Auto => Self::Never,
            other => other,
        }
    }
}

/// A setting and the answer of its probe.
#[derive(Debug)]
pub(crate) struct ProbedSetting<T> {
    configured: T,
    works: AtomicBool,
}

impl<T: AutoSetting> ProbedSetting<T> {
    pub(crate) fn new(configured: T) -> Self {
        Self {
            configured,
            works: AtomicBool::new(false),
        }
    }

    /// Value for a new Pod; `Auto`: the feature is known to work.
    pub(crate) fn current(&self) -> T {
        if self.works.load(Ordering::Relaxed) {
            self.configured
        } else {
            self.configured.unless_auto()
        }
    }

    pub(crate) fn record_probe(&self, works: bool) {
        self.works.store(works, Ordering::Relaxed);
    }
}
