//! Creation in namespaces whose policies reject Pods with persistence.

use crds::Sandbox;
use crds::contract::persistence::{PersistenceLevel, RootMechanism};
use crds::sandbox::PersistedState;
use jiff::Timestamp;
use tokio::time::advance;

use super::*;
use crate::config::{RootPersistence, UserNamespaces};
use crate::reconcile::observe::snapshot;

/// Texts of Kubernetes: Pod Security, and a `ValidatingAdmissionPolicy` without a reason of its own.
const POD_SECURITY: (u16, &str) = (
    403,
    "pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\": non-default capabilities",
);
const ADMISSION_POLICY: (u16, &str) = (
    422,
    "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'seccomp' with binding 'all' denied request: no",
);

const NO_MEMORY: &str =
    "Pod Security or another policy of the namespace rejects Pods that can save processes";
const NO_ROOT: &str = "Pod Security or another policy of the namespace rejects Pods that can save \
    files outside of the workspace";
const NO_OVERLAY: &str = "the changed files are in an overlay on the volume, and Pod Security or \
    another policy of the namespace rejects Pods that can mount it";

/// Level and mechanism of the Pod, and the reason why it is less than asked for.
type CreatedPersistence = (
    Option<(PersistenceLevel, RootMechanism)>,
    Option<&'static str>,
);

const MEMORY: CreatedPersistence = (
    Some((PersistenceLevel::Memory, RootMechanism::Overlay)),
    None,
);
const ROOT: (PersistenceLevel, RootMechanism) = (PersistenceLevel::Root, RootMechanism::Overlay);
const ARCHIVE: (PersistenceLevel, RootMechanism) = (PersistenceLevel::Root, RootMechanism::Archive);

/// The Sandbox `ns/a` of a cluster whose Pods can mount overlays and save processes.
struct Fixture {
    api: FakeApi,
    context: Context,
    key: Key,
}

impl Fixture {
    fn new(level: &str, mechanism: Option<&str>) -> Self {
        let api = FakeApi::default();
        let mut config = config();
        config.persistence.memory = true;
        config.persistence.root = RootPersistence::Auto;
        config.pods.user_namespaces = UserNamespaces::Always;
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let fixture = Self {
            context: context(api.client(), config, clock),
            api,
            key: crate::tests::key("a"),
        };
        fixture.context.root_overlays.record_probe(None, true);
        let mut status = json!({});
        if let Some(mechanism) = mechanism {
            let volume = json!({"workspaceClaim": "w", "hasStateVolume": true});
            status = volume;
            status["rootMechanism"] = mechanism.into();
        }
        let sandbox: Sandbox = serde_json::from_value(json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
            "metadata": {"namespace": "ns", "name": "a", "uid": "uid", "generation": 1,
                "resourceVersion": "1"},
            "spec": {"image": "i", "command": ["c"], "workspace": {"size": "1Gi"}, "persistence": level},
            "status": status,
        }))
        .unwrap();
        fixture.context.index.apply(&sandbox);
        fixture
    }

    fn observed(&self) -> Observed {
        snapshot(&self.context, &self.key, self.context.clock.now()).unwrap()
    }

    /// Starts the sandbox where policies reject so many Pods, and ends it again. Returns also the
    /// number of Pods that the API server was asked for.
    async fn start(
        &self,
        rejections: usize,
        (code, text): (u16, &str),
    ) -> (CreatedPersistence, usize) {
        let before = self.api.calls().len();
        for _ in 0..rejections {
            self.api.fail_with(code, text);
        }
        pod(&self.context, &self.observed(), PodParams::default())
            .await
            .unwrap();
        let requests = self.api.calls().len() - before;
        let observed = self.observed();
        let made = observed.facts.pod.unwrap();
        let persistence = made.persistence.map(|it| (it.level, it.root));
        let reason = observed.persistence_obstacle.map(|it| it.to_string());
        let known = [NO_MEMORY, NO_ROOT, NO_OVERLAY];
        let known = reason.map(|text| *known.iter().find(|it| **it == text).unwrap());
        let name = names::pod("a");
        self.api
            .delete(&format!("/api/v1/namespaces/ns/pods/{name}"));
        self.context.pods.forget(&self.key, Some("uid"), &made.uid);
        ((persistence, known), requests)
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_pod_is_created_with_less_persistence() {
    for policy in [POD_SECURITY, ADMISSION_POLICY] {
        for (level, mechanism, rejections, expected) in [
            ("Memory", None, 0, MEMORY),
            ("Memory", None, 1, (Some(ROOT), Some(NO_MEMORY))),
            ("Memory", None, 2, (Some(ARCHIVE), Some(NO_MEMORY))),
            ("Memory", None, 3, (None, Some(NO_ROOT))),
            ("Root", None, 0, (Some(ROOT), None)),
            ("Root", None, 1, (Some(ARCHIVE), None)),
            ("Root", None, 2, (None, Some(NO_ROOT))),
            // An archive would hide the files of the overlay.
            ("Root", Some("Overlay"), 1, (None, Some(NO_OVERLAY))),
            ("Memory", Some("Overlay"), 1, (Some(ROOT), Some(NO_MEMORY))),
            ("Memory", Some("Overlay"), 2, (None, Some(NO_OVERLAY))),
            ("Root", Some("Archive"), 1, (None, Some(NO_ROOT))),
        ] {
            let fixture = Fixture::new(level, mechanism);
            let first = fixture.start(rejections, policy).await;
            let case = format!("{level} {mechanism:?} {rejections}");
            assert_eq!(first, (expected, rejections + 1), "{case}");
            let second = fixture.start(0, policy).await;
            assert_eq!(second, (expected, 1), "remembered: {case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rejections_are_forgotten_so_that_other_policies_are_found_out() {
    let fixture = Fixture::new("Memory", None);
    let archive = (Some(ARCHIVE), Some(NO_MEMORY));
    assert_eq!(fixture.start(2, POD_SECURITY).await, (archive, 3));
    advance(Duration::from_secs(599)).await;
    assert_eq!(fixture.start(0, POD_SECURITY).await, (archive, 1));
    advance(Duration::from_secs(1)).await;
    assert_eq!(fixture.start(0, POD_SECURITY).await, (MEMORY, 1));
}

#[tokio::test(start_paused = true)]
async fn reason_is_read_from_the_pod_after_a_restart_of_the_controller() {
    let first = Fixture::new("Memory", None);
    for _ in 0..2 {
        first.api.fail_with(POD_SECURITY.0, POD_SECURITY.1);
    }
    pod(&first.context, &first.observed(), PodParams::default())
        .await
        .unwrap();
    let second = Fixture::new("Memory", None);
    assert_eq!(second.observed().persistence_obstacle, None);
    let made = first.api.objects().remove(0);
    second
        .context
        .pods
        .apply(&serde_json::from_value(made).unwrap());
    let reason = second.observed().persistence_obstacle.unwrap();
    assert_eq!(reason.to_string(), NO_MEMORY);
}

#[tokio::test(start_paused = true)]
async fn rejection_for_another_fault_is_reported_and_not_remembered() {
    let fixture = Fixture::new("Memory", None);
    let last = "pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\": hostPort";
    for text in [POD_SECURITY.1, POD_SECURITY.1, POD_SECURITY.1, last] {
        fixture.api.fail_with(403, text);
    }
    let error = pod(&fixture.context, &fixture.observed(), PodParams::default()).await;
    let rejection = error.unwrap_err().rejection().unwrap();
    assert_eq!((&*rejection.message, rejection.is_terminal), (last, false));
    assert_eq!(fixture.start(0, POD_SECURITY).await, (MEMORY, 1));

    let quota = "pods \"a\" is forbidden: exceeded quota: compute";
    fixture.api.fail_with(403, quota);
    let error = pod(&fixture.context, &fixture.observed(), PodParams::default()).await;
    let rejection = error.unwrap_err().rejection().unwrap();
    assert_eq!(rejection.message, quota, "one request");
}

#[tokio::test(start_paused = true)]
async fn pod_that_waits_for_a_resume_keeps_what_the_pause_has_kept() {
    for (level, is_created) in [
        (PersistenceLevel::Memory, false),
        (PersistenceLevel::Root, true),
    ] {
        let fixture = Fixture::new("Memory", Some("Overlay"));
        fixture.api.fail_with(POD_SECURITY.0, POD_SECURITY.1);
        let mut observed = fixture.observed();
        let entry = Arc::make_mut(&mut observed.entry);
        entry.status.persisted = Some(PersistedState {
            level,
            ..PersistedState::default()
        });
        let params = PodParams {
            created_in_pause: Some(Timestamp::UNIX_EPOCH),
            ..PodParams::default()
        };
        let created = pod(&fixture.context, &observed, params).await;
        assert_eq!(created.is_ok(), is_created, "{level:?}");
    }
}
