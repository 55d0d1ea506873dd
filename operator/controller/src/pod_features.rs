//! Features of new Pods that depend on the cluster: those that a probe has shown to work.

use crds::contract::persistence::RootMechanism;
use k8s_openapi::api::core::v1::PodSpec;
use parking_lot::RwLock;
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
    /// No probe has an answer for the runtime class: the features are those of the default class.
    pub is_class_unknown: bool,
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
            ..Self::default()
        }
    }

    /// The features that fit this Pod: no probe tells whether a virtual machine mounts images. A Pod of
    /// an unknown class, in host namespaces or with block devices may not start with its own users, and
    /// NFS cannot be mapped to them.
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
        let proven = self.proven();
        let user_namespaces = if host || has_nfs || has_devices {
            proven.user_namespaces.unless_auto()
        } else {
            proven.user_namespaces
        };
        Self {
            injection,
            user_namespaces,
            ..self
        }
    }

    /// The features of a Pod whose class is final: nothing stands in for the answers of its probes.
    pub(crate) fn proven(self) -> Self {
        if self.is_class_unknown {
            Self {
                user_namespaces: self.user_namespaces.unless_auto(),
                ..self
            }
        } else {
            self
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

/// A setting and the answers of its probe for the runtime classes of Pods.
#[derive(Debug)]
pub(crate) struct ProbedSetting<T> {
    configured: T,
    /// The few classes with an answer. `None`: Pods without a class.
    answers: RwLock<Vec<(Option<String>, bool)>>,
}

impl<T: AutoSetting> ProbedSetting<T> {
    pub(crate) fn new(configured: T) -> Self {
        Self {
            configured,
            answers: RwLock::default(),
        }
    }

    /// Value for a new Pod of a class; `Auto`: the feature is known to work.
    pub(crate) fn current(&self, class: Option<&str>) -> T {
        if self.answer(class) == Some(true) {
            self.configured
        } else {
            self.configured.unless_auto()
        }
    }

    pub(crate) fn record_probe(&self, class: Option<&str>, works: bool) {
        let mut answers = self.answers.write();
        answers.retain(|(known, _)| known.as_deref() != class);
        answers.push((class.map(str::to_owned), works));
    }

    /// The answer for a class, or else for one that shares the kernel of the node as it does.
    pub(crate) fn answer(&self, class: Option<&str>) -> Option<bool> {
        let answers = self.answers.read();
        let of = |class: Option<&str>| {
            let found = answers.iter().find(|(known, _)| known.as_deref() == class);
            found.map(|(_, works)| *works)
        };
        let shares_kernel = class.is_none_or(runtime_class::shares_kernel);
        let alike = runtime_class::SHARED_KERNEL.map(Some);
        let mut alike = [None].into_iter().chain(alike);
        of(class).or_else(|| alike.find_map(of).filter(|_| shares_kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_without_an_answer_has_that_of_a_class_with_the_same_kernel() {
        let (runc, kata) = (Some("runc"), Some("kata"));
        for (answers, class, expected) in [
            (&[][..], None, None),
            (&[(None, true)], None, Some(true)),
            (&[(None, true)], runc, Some(true)),
            (&[(None, true)], kata, None),
            (&[(None, true), (runc, false)], runc, Some(false)),
            (&[(None, false), (kata, true)], kata, Some(true)),
            (&[(None, true), (None, false)], None, Some(false)),
            (&[(kata, true)], None, None),
            (&[(runc, true)], Some("crun"), Some(true)),
            (&[(runc, true)], None, Some(true)),
        ] {
            let setting = ProbedSetting::new(UserNamespaces::Auto);
            for (class, works) in answers {
                setting.record_probe(*class, *works);
            }
            assert_eq!(setting.answer(class), expected, "{answers:?} {class:?}");
            let works = setting.current(class) == UserNamespaces::Auto;
            assert_eq!(works, expected == Some(true), "{answers:?} {class:?}");
        }
    }
}
