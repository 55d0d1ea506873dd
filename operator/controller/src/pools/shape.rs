//! Shape of a Pod: what is fixed when it is created. A warm Pod fits a sandbox whose own Pod would
//! have the same shape. Command, working directory, plain environment and keys do not count: they
//! arrive with the init message.

use std::sync::Arc;

use crds::contract::prestart::Prestart;
use crds::names;
use crds::pool::{ClaimPolicy, SandboxPoolSpec};
use crds::sandbox::{SandboxSpec, SandboxStatus, Session};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceRequirements};

use super::fixed_variables::is_fixed;
use super::{Pool, idle_resources, prestart};
use crate::config::{ControllerConfig, Deadlines};
use crate::facts::{REVISION_ANNOTATION, SHAPE_ANNOTATION, SourceVolume};
use crate::pod_features::PodFeatures;
use crate::reconcile::build::persistence::warm_level;
use crate::reconcile::build::pod::pod;
use crate::reconcile::build::{BuildContext, BuildError, PodParams, PoolRef, pod_owner, volumes};
use shared::index::{Entry, Key};
use shared::keys::Keys;
use shared::resources::requirements;

/// Template of the warm Pods of a pool.
#[derive(Debug)]
pub(crate) struct WarmTemplate {
    /// A sandbox without fields of its own, completed by the pool.
    pub(crate) spec: SandboxSpec,
    /// Shape of the Pods: sandboxes of the same shape can claim them.
    pub(crate) shape: String,
    /// Hash of all that the Pods are made from: others are outdated.
    pub(crate) revision: String,
    prestart: Option<Prestart>,
    /// Resources until the claim, if they are not those of the spec.
    pub(super) idle: Option<ResourceRequirements>,
    /// Volume of the snapshot that the Pods begin with.
    source: Option<SourceVolume>,
}

/// Builder of warm Pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WarmPods<'a> {
    pub(crate) config: &'a ControllerConfig,
    pub(crate) keys: &'a Keys,
    /// Features of the Pods of [`Self::build`]. Those that a probe decides on are not part of their
    /// shape: they make no difference to a sandbox, and a probe may change them at any time.
    pub(crate) features: PodFeatures,
}

impl WarmPods<'_> {
    /// Shape of the warm Pod that a sandbox with `spec`, which begins with the snapshot on `source`, can
    /// claim: a hash of a Pod built from them.
    pub(crate) fn shape(
        self,
        spec: &SandboxSpec,
        source: Option<&SourceVolume>,
    ) -> Result<String, BuildError> {
        let key = Key {
            namespace: "namespace".into(),
            name: "pod".into(),
        };
        let pool = PoolRef {
            name: "pool".into(),
            uid: String::new(),
        };
        let pods = self.unprobed();
        let pod = pods.unmarked(key, &pool, spec, source)?;
        Ok(super::hash(&pod))
    }

    /// The warm Pod of this name.
    pub(crate) fn build(
        self,
        key: Key,
        pool: &PoolRef,
        template: &WarmTemplate,
        is_small: bool,
    ) -> Result<Pod, BuildError> {
        let mut pod = self.unmarked(key, pool, &template.spec, template.source.as_ref())?;
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(SHAPE_ANNOTATION.to_owned(), template.shape.clone());
        annotations.insert(REVISION_ANNOTATION.to_owned(), template.revision.clone());
        if let Some(prestart) = &template.prestart {
            prestart::add(&mut pod, prestart);
        }
        if let Some(idle) = template.idle.as_ref().filter(|_| is_small) {
            idle_resources::shrink(&mut pod, idle);
        }
        Ok(pod)
    }

    fn unprobed(self) -> Self {
        Self {
            features: self.features.unprobed(),
            ..self
        }
    }

    /// A Pod with all images of the warm Pods, that of the executor as a container.
    pub(super) fn images(
        self,
        key: &Key,
        pool: &PoolRef,
        spec: &SandboxSpec,
    ) -> Result<Pod, BuildError> {
        self.unprobed().unmarked(key.clone(), pool, spec, None)
    }

    /// Template of the warm Pods of a pool, which begin with the snapshot on `source`.
    pub(crate) fn template(
        self,
        pool: &Pool,
        source: Option<&SourceVolume>,
    ) -> Result<Arc<WarmTemplate>, BuildError> {
        let mut known = pool.warm_template.lock();
        if let Some(template) = &*known
            && template.source.as_ref() == source
        {
            return Ok(template.clone());
        }
        let template = Arc::new(self.new_template(pool, source)?);
        Ok(known.insert(template).clone())
    }

    fn new_template(
        self,
        pool: &Pool,
        source: Option<&SourceVolume>,
    ) -> Result<WarmTemplate, BuildError> {
        // Sessions of the runtime API have another security profile than other sandboxes.
        let is_for_sessions = pool.spec.claimed_by == ClaimPolicy::Matching;
        let spec = pool.fill(&SandboxSpec {
            session: is_for_sessions.then(Session::default),
            ..SandboxSpec::default()
        });
        let shape = self.shape(&spec, source)?;
        let prestart = self.prestart(&pool.spec, &spec)?;
        let idle = self.idle(&pool.spec, &spec)?;
        Ok(WarmTemplate {
            revision: match (&prestart, &idle) {
                (None, None) => shape.clone(),
                (prestart, None) => super::hash(&(&shape, prestart)),
                all => super::hash(&(&shape, all)),
            },
            spec,
            shape,
            prestart,
            idle,
            source: source.cloned(),
        })
    }

    fn idle(
        self,
        pool: &SandboxPoolSpec,
        spec: &SandboxSpec,
    ) -> Result<Option<ResourceRequirements>, BuildError> {
        let full = requirements(spec, &self.config.defaults.resources)?;
        let own = pool.idle_resources.as_ref();
        own.map(|own| idle_resources::idle(&full, own)).transpose()
    }

    fn prestart(
        self,
        pool: &SandboxPoolSpec,
        spec: &SandboxSpec,
    ) -> Result<Option<Prestart>, BuildError> {
        let entry = stand_in(Key::default(), spec.clone());
        let lifecycle = &self.config.defaults.lifecycle;
        let context = BuildContext {
            deadlines: lifecycle.overridden(spec.lifecycle.as_ref()),
            ..self.context(&entry, None, None)
        };
        pool.prestart
            .map(|mode| prestart::build(&context, mode, pool.prestart_path.as_deref()))
            .transpose()
    }

    /// The PVC of a warm Pod, which belongs to the Pod and ends with it if no sandbox claims it.
    pub(crate) fn volume(
        self,
        key: Key,
        pool: &PoolRef,
        spec: &SandboxSpec,
        pod_uid: &str,
    ) -> Result<Option<PersistentVolumeClaim>, BuildError> {
        let owner = pod_owner(&key.name, pod_uid);
        let entry = stand_in(key, fixed_part(spec));
        let mut volume = volumes::claim(&self.context(&entry, Some(pool), None))?;
        if let Some(volume) = &mut volume {
            volume.metadata.owner_references = Some(vec![owner]);
        }
        Ok(volume)
    }

    fn context<'a>(
        &'a self,
        entry: &'a Entry,
        pool: Option<&'a PoolRef>,
        source: Option<&'a SourceVolume>,
    ) -> BuildContext<'a> {
        BuildContext {
            entry,
            config: self.config,
            keys: self.keys,
            url: "",
            deadlines: Deadlines::default(),
            level: warm_level(&entry.spec, self.config),
            pool,
            features: self.features,
            source,
        }
    }

    fn unmarked(
        self,
        key: Key,
        pool: &PoolRef,
        spec: &SandboxSpec,
        source: Option<&SourceVolume>,
    ) -> Result<Pod, BuildError> {
        let entry = stand_in(key, fixed_part(spec));
        let context = self.context(&entry, Some(pool), source);
        pod(&context, &PodParams::default())
    }
}

/// The part of a spec that shapes the Pod. It always has a supervisor.
fn fixed_part(spec: &SandboxSpec) -> SandboxSpec {
    SandboxSpec {
        image: spec.image.clone(),
        image_pull_policy: spec.image_pull_policy,
        command: Some(Vec::new()),
        env: if is_fixed(&spec.env) {
            spec.env.clone()
        } else {
            Vec::new()
        },
        resources: spec.resources.clone(),
        resource_factor: spec.resource_factor,
        runtime_class_name: spec.runtime_class_name.clone(),
        security_context: spec.security_context.clone(),
        session: spec.session.as_ref().map(|_| Session::default()),
        workspace: spec.workspace.clone(),
        persistence: spec.persistence,
        pod_template: spec.pod_template.clone(),
        ..SandboxSpec::default()
    }
}

/// An entry that stands for a warm Pod, which has no sandbox yet.
fn stand_in(key: Key, spec: SandboxSpec) -> Entry {
    Entry {
        key: Key {
            name: names::pod(&key.name),
            ..key
        },
        uid: String::new(),
        resource_version: String::new(),
        generation: 0,
        created_at: None,
        deleting: false,
        wake_at: None,
        trace: None,
        runtime_id: String::new(),
        spec: Arc::new(spec),
        has_sealed_env: false,
        payload_bytes: 0,
        status: SandboxStatus::default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{RootPersistence, UserNamespaces};
    use crate::facts::{PERSISTENCE_ANNOTATION, SnapshotIdentity};
    use crate::tests::{config, keys};

    fn shape(fields: Value) -> String {
        let spec = serde_json::from_value(fields).unwrap();
        let (config, keys) = (config(), keys());
        let pods = WarmPods {
            config: &config,
            keys: &keys,
            features: PodFeatures::default(),
        };
        pods.shape(&spec, None).unwrap()
    }

    #[test]
    fn shape_ignores_what_arrives_at_the_claim() {
        let pool = shape(json!({"image": "i"}));
        for same in [
            json!({"command": ["a"], "workingDir": "/a"}),
            json!({"env": [{"name": "A", "value": "1"}], "sealedEnv": "v1.x"}),
            json!({"keyRotation": 2}),
            json!({"ports": [{"name": "runtime", "port": 1}]}),
            json!({"lifecycle": {"idleTimeout": "1m"}, "resourceFactor": 1.0}),
            json!({"resources": {"limits": {"memory": "2Gi"}}}),
        ] {
            let mut spec = same.clone();
            spec["image"] = json!("i");
            assert_eq!(shape(spec), pool, "{same}");
        }
    }

    #[test]
    fn shape_differs_with_what_the_pod_fixes() {
        let pool = shape(json!({"image": "i"}));
        let reference = json!({"fieldRef": {"fieldPath": "metadata.name"}});
        for other in [
            json!({"image": "j"}),
            json!({"imagePullPolicy": "Always"}),
            json!({"session": {"tenant": "t", "id": "s"}}),
            json!({"runtimeClassName": "gvisor"}),
            json!({"resources": {"limits": {"memory": "3Gi"}}}),
            json!({"resourceFactor": 2.0}),
            json!({"securityContext": {"runAsUser": 1}}),
            json!({"workspace": {"size": "1Gi"}}),
            json!({"workspace": {"size": "1Gi"}, "persistence": "Root"}),
            json!({"env": [{"name": "A", "valueFrom": reference}]}),
            json!({"env": [{"name": "A", "value": "$(B)"}]}),
            json!({"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}),
        ] {
            let mut spec = json!({"image": "i"});
            spec.as_object_mut()
                .unwrap()
                .extend(other.as_object().unwrap().clone());
            assert_ne!(shape(spec), pool, "{other}");
        }
    }

    #[test]
    fn shape_has_the_snapshot() {
        let fields = json!({"image": "i", "workspace": {"size": "1Gi"}, "persistence": "Root"});
        let spec = serde_json::from_value(fields).unwrap();
        let (config, keys) = (config(), keys());
        let pods = WarmPods {
            config: &config,
            keys: &keys,
            features: PodFeatures::default(),
        };
        let shape = |uid: Option<&str>| {
            let source = uid.map(|uid| SourceVolume {
                snapshot: SnapshotIdentity {
                    uid: uid.into(),
                    created_at: None,
                },
                claim: "c".into(),
            });
            pods.shape(&spec, source.as_ref()).unwrap()
        };
        assert_ne!(shape(Some("a")), shape(Some("b")));
        assert_ne!(shape(Some("a")), shape(None));
    }

    #[test]
    fn automatic_level_of_warm_pods_depends_on_no_probe() {
        let (config, keys) = (config(), keys());
        let pods = WarmPods {
            config: &config,
            keys: &keys,
            features: PodFeatures {
                user_namespaces: UserNamespaces::Auto,
                root_persistence: RootPersistence::Auto,
                ..PodFeatures::default()
            },
        };
        let pool = PoolRef {
            name: "pool".into(),
            uid: "uid".into(),
        };
        let mut fields = json!({
            "image": "i", "session": {"tenant": "t", "id": "s"}, "workspace": {"size": "1Gi"},
        });
        let mut is_kept = |level: Value| {
            fields["persistence"] = level;
            let spec = serde_json::from_value(fields.clone()).unwrap();
            let pod = pods.unmarked(Key::default(), &pool, &spec, None).unwrap();
            let annotations = pod.metadata.annotations.unwrap_or_default();
            annotations.contains_key(PERSISTENCE_ANNOTATION)
        };
        assert!(!is_kept(Value::Null));
        assert!(is_kept(json!("Root")));
    }
}
