//! Features of Pods by the answers of the probes for their runtime class.

use crds::Sandbox;
use crds::contract::persistence::RootMechanism;

use super::*;
use crate::config::{RootPersistence, UserNamespaces};
use crate::reconcile::observe::snapshot;

/// The Sandbox `ns/a` of level `Root` with these fields, whose volume has files by a mechanism.
struct Fixture {
    api: FakeApi,
    context: Context,
}

impl Fixture {
    fn new(
        fields: &Value,
        mechanism: Option<RootMechanism>,
        answers: &[(Option<&str>, bool)],
    ) -> Self {
        let api = FakeApi::default();
        let mut config = config();
        config.persistence.root = RootPersistence::Auto;
        config.pods.user_namespaces = UserNamespaces::Auto;
        config.classes.gvisor = Some("runsc".into());
        let context = context_of(&api, config);
        for (class, works) in answers {
            context.user_namespaces.record_probe(*class, *works);
            context.root_overlays.record_probe(*class, *works);
        }
        let mut spec = json!({"image": "i", "command": ["c"], "workspace": {"size": "1Gi"},
            "persistence": "Root"});
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let mut status = json!({});
        if let Some(mechanism) = mechanism {
            status =
                json!({"workspaceClaim": "w", "hasStateVolume": true, "rootMechanism": mechanism});
        }
        let sandbox: Sandbox = serde_json::from_value(json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "spec": spec, "status": status,
            "metadata": {"namespace": "ns", "name": "a", "uid": "uid", "generation": 1,
                "resourceVersion": "1"},
        }))
        .unwrap();
        context.index.apply(&sandbox);
        Self { api, context }
    }

    fn observed(&self) -> Observed {
        let key = crate::tests::key("a");
        snapshot(&self.context, &key, self.context.clock.now()).unwrap()
    }

    /// Creates the Pod. Returns `hostUsers` and the mechanism by which it keeps its root, and whether
    /// the status has a reason for less.
    async fn create(&self) -> (Option<bool>, Option<RootMechanism>, bool) {
        pod(&self.context, &self.observed(), PodParams::default())
            .await
            .unwrap();
        let host_users = self.api.objects()[0]["spec"]["hostUsers"].as_bool();
        let observed = self.observed();
        let made = observed.facts.pod.unwrap();
        let mechanism = made.persistence.map(|it| it.root);
        (
            host_users,
            mechanism,
            observed.persistence_obstacle.is_some(),
        )
    }
}

const OVERLAY: (Option<bool>, Option<RootMechanism>, bool) =
    (Some(false), Some(RootMechanism::Overlay), false);
const ARCHIVE: (Option<bool>, Option<RootMechanism>, bool) =
    (None, Some(RootMechanism::Archive), false);

#[tokio::test]
async fn pod_has_what_probes_have_shown_for_its_runtime_class() {
    let answers = [(None, true), (Some("kata"), true), (Some("runsc"), false)];
    let template = json!({"podTemplate": {"spec": {"runtimeClassName": "kata"}}});
    let of_template = json!({"podTemplate": {"spec": {"runtimeClassName": "runsc"}}});
    for (fields, expected) in [
        (json!({}), OVERLAY),
        (json!({"runtimeClassName": "kata"}), OVERLAY),
        (json!({"runtimeClassName": "runc"}), OVERLAY),
        (json!({"runtimeClassName": "gvisor"}), ARCHIVE),
        (json!({"runtimeClassName": "unknown"}), ARCHIVE),
        (template, OVERLAY),
        (of_template, ARCHIVE),
    ] {
        let fixture = Fixture::new(&fields, None, &answers);
        assert_eq!(fixture.create().await, expected, "{fields}");
    }
}

#[tokio::test]
async fn pod_of_an_unknown_class_starts_without_the_overlay_and_says_so() {
    let kata = json!({"runtimeClassName": "kata"});
    for (answers, expected) in [
        (&[(Some("kata"), true)][..], OVERLAY),
        (&[(None, true), (Some("kata"), false)], (None, None, true)),
        (&[(None, true)], (None, None, true)),
        (&[], (None, None, true)),
    ] {
        let fixture = Fixture::new(&kata, Some(RootMechanism::Overlay), answers);
        assert_eq!(fixture.create().await, expected, "{answers:?}");
    }
}

#[tokio::test]
async fn pod_of_a_class_that_is_missing_has_what_the_default_class_has() {
    let kata = json!({"runtimeClassName": "kata"});
    let automatic = json!({"runtimeClassName": "kata", "persistence": null,
        "session": {"tenant": "t", "id": "s"}});
    let overlay = Some(RootMechanism::Overlay);
    let missing = "pods \"a\" is forbidden: pod rejected: RuntimeClass \"kata\" not found";
    for (fields, mechanism, answers, expected) in [
        (&kata, None, &[(None, true)][..], OVERLAY),
        (&automatic, None, &[(None, true)], OVERLAY),
        (&kata, None, &[(None, false), (Some("kata"), true)], ARCHIVE),
        (&kata, overlay, &[(None, true)], OVERLAY),
        (
            &kata,
            overlay,
            &[(None, true), (Some("kata"), false)],
            OVERLAY,
        ),
    ] {
        let fixture = Fixture::new(fields, mechanism, answers);
        fixture.api.fail_with(403, missing);
        let case = format!("{fields} {mechanism:?} {answers:?}");
        assert_eq!(fixture.create().await, expected, "{case}");
    }
}
