use serde_json::{Value, json};

use super::*;

fn pod(status: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap()
}

fn ended(name: &str, code: i32, message: &str) -> Value {
    json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "message": message}}})
}

fn waiting(reason: &str) -> Value {
    json!({"name": "build", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": "why"}}})
}

fn failure(status: &Value) -> (&'static str, String) {
    match progress(&pod(status)) {
        Progress::Failed(failure) => (failure.reason, failure.message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn succeeded_pod_names_the_image_that_it_pushed() {
    let message = r#"{"digest":"sha256:1","sizeBytes":7}"#;
    let status = json!({"phase": "Succeeded", "containerStatuses": [ended("push", 0, message)]});
    let built = BuiltImage {
        digest: "sha256:1".into(),
        size_bytes: 7,
    };
    assert_eq!(progress(&pod(&status)), Progress::Succeeded(Some(built)));
    let local = json!({"phase": "Succeeded", "containerStatuses": [ended("build", 0, "")]});
    assert_eq!(progress(&pod(&local)), Progress::Succeeded(None));
    let silent = json!({"phase": "Succeeded", "containerStatuses": [ended("push", 0, "")]});
    assert_eq!(failure(&silent).0, reason::BUILDER_ERROR);
}

#[test]
fn failure_is_that_of_the_container_or_of_the_node() {
    let fetched = ended("fetch", 0, "");
    let failed =
        |containers: &[Value]| json!({"phase": "Failed", "initContainerStatuses": containers});
    let fetch = failed(&[ended("fetch", 1, "r: access denied")]);
    assert_eq!(
        failure(&fetch),
        (reason::REGISTRY_ERROR, "r: access denied".into())
    );
    let build = failed(&[fetched.clone(), ended("build", 1, "ignored")]);
    assert_eq!(
        failure(&build),
        ("BuildFailed", "an instruction has failed".into())
    );
    let mut killed = ended("build", 137, "");
    killed["state"]["terminated"]["reason"] = "OOMKilled".into();
    assert_eq!(
        failure(&failed(&[fetched.clone(), killed])).0,
        "OutOfMemory"
    );
    let mut unstarted = ended("build", 128, "no such program");
    unstarted["state"]["terminated"]["reason"] = "StartError".into();
    let unstarted = failure(&failed(&[fetched.clone(), unstarted]));
    assert_eq!(unstarted, (reason::BUILDER_ERROR, "no such program".into()));
    let late = json!({"phase": "Failed", "reason": "DeadlineExceeded",
        "initContainerStatuses": [waiting("ImagePullBackOff")]});
    let (reason, message) = failure(&late);
    assert_eq!(reason, "DeadlineExceeded");
    assert!(message.ends_with(": why"), "{message}");
    let full = json!({"phase": "Failed", "reason": "Evicted",
        "message": "Usage of EmptyDir volume \"state\" exceeds the limit \"30Gi\"."});
    assert_eq!(failure(&full).0, "OutOfDisk");
    let mut evicted = failed(&[fetched, ended("build", 137, "")]);
    evicted["reason"] = "Evicted".into();
    evicted["message"] = "disk pressure".into();
    assert_eq!(
        progress(&pod(&evicted)),
        Progress::Lost("disk pressure".into())
    );
    let restarted = progress(&pod(&failed(&[ended("build", 137, "")])));
    assert!(matches!(restarted, Progress::Lost(_)), "{restarted:?}");
    let bare = progress(&pod(&json!({"phase": "Failed"})));
    assert!(matches!(bare, Progress::Lost(_)), "{bare:?}");
}

#[test]
fn waiting_pod_fails_only_for_reasons_that_stay() {
    let pending =
        |reason: &str| json!({"phase": "Pending", "initContainerStatuses": [waiting(reason)]});
    for reason in ["ErrImagePull", "ImagePullBackOff", "PodInitializing"] {
        assert_eq!(
            progress(&pod(&pending(reason))),
            Progress::Unfinished,
            "{reason}"
        );
    }
    let (reason, message) = failure(&pending("InvalidImageName"));
    assert_eq!(reason, "BuilderError");
    assert_eq!(message, "container build: InvalidImageName: why");
    assert_eq!(progress(&Pod::default()), Progress::Unfinished);
    assert!(!has_log(&pod(&pending("PodInitializing"))));
    assert!(has_log(&pod(
        &json!({"initContainerStatuses": [ended("build", 0, "")]})
    )));
}
