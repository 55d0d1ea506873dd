use serde_json::{Value, json};

use super::*;

const LIMITS: BuildLimits = BuildLimits {
    builds: 3,
    builds_per_tenant: 1,
    cpu: String::new(),
    memory: String::new(),
    disk: String::new(),
};

/// A build of this tag, and of this age in minutes.
fn build(tag: &str, tenant: &str, age: i64, status: &Value) -> ImageBuild {
    let created_at = now() - SignedDuration::from_mins(age);
    let target = format!("r/runtime:{tag}");
    let name = names::image_build(tenant, &target);
    let object = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "ImageBuild",
        "metadata": {"name": name, "namespace": "ns", "uid": tag, "resourceVersion": "5",
            "creationTimestamp": created_at.to_string()},
        "spec": {"tenant": tenant, "target": target, "contextDigest": "", "mode": "Full"},
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn tag(build: &ImageBuild) -> &str {
    build.spec.target.rsplit(':').next().unwrap()
}

fn now() -> Timestamp {
    "2026-11-20T00:00:00Z".parse().unwrap()
}

fn queue_of(builds: impl IntoIterator<Item = ImageBuild>) -> Arc<BuildQueue> {
    let queue = Arc::<BuildQueue>::default();
    builds.into_iter().for_each(|build| queue.apply(build));
    queue
}

fn waiting() -> Value {
    json!({"context": format!("r/runtime@sha256:{}", "1".repeat(64))})
}

fn begun() -> Value {
    json!({"context": format!("r/runtime@sha256:{}", "1".repeat(64)), "phase": "Running", "attempts": 1})
}

#[test]
fn oldest_build_that_the_limits_allow_is_next() {
    let queue = queue_of([
        build("second", "a", 2, &waiting()),
        build("first", "a", 3, &waiting()),
        build("other", "b", 1, &waiting()),
        build("begun", "c", 0, &begun()),
        build("late", "d", 0, &waiting()),
        build("without-context", "e", 9, &json!({})),
        build(
            "finished",
            "e",
            9,
            &json!({"context": "r/runtime:1", "phase": "Failed"}),
        ),
    ]);
    let taken: Vec<_> = std::iter::from_fn(|| queue.take(&LIMITS)).collect();
    let names: Vec<_> = taken.iter().map(|taken| tag(&taken.build)).collect();
    assert_eq!(names, ["begun", "first", "other"]);
    assert_eq!(queue.counts(), (2, 3));
    // Of the same tenant, and the next one.
    let [_begun, first, other] = <[_; 3]>::try_from(taken).unwrap();
    queue.apply(build("first", "a", 3, &json!({"phase": "Succeeded"})));
    drop((first, other));
    let next: Vec<_> = std::iter::from_fn(|| queue.take(&LIMITS)).collect();
    let names: Vec<_> = next.iter().map(|next| tag(&next.build)).collect();
    assert_eq!(names, ["second", "other"]);
}

#[test]
fn only_builds_that_never_began_expire() {
    let queue = queue_of([
        build("new", "a", 20, &waiting()),
        build("old", "a", 29, &waiting()),
        build("begun", "b", 40, &begun()),
    ]);
    let expired = queue.expired(now());
    let names: Vec<_> = expired.iter().map(|build| tag(build)).collect();
    assert_eq!(names, ["old"]);
}

#[test]
fn own_write_is_not_undone_by_a_late_event() {
    let queue = queue_of([build("a", "a", 0, &begun())]);
    let mut stale = build("a", "a", 0, &waiting());
    stale.metadata.resource_version = Some("4".into());
    queue.apply(stale);
    let key = key_of(&build("a", "a", 0, &waiting()));
    let known = queue.unfinished(&key, Some("a")).unwrap();
    assert!(!is_waiting(&known));
    assert!(queue.unfinished(&key, Some("another uid")).is_none());
    queue.retain(&HashSet::new());
    assert!(!queue.has(&key));
}

#[test]
fn build_that_no_gateway_has_handed_over_is_left_alone() {
    let good = build("1", "a", 0, &waiting());
    let mut renamed = good.clone();
    renamed.metadata.name = Some("planted".into());
    let mut alias = good.clone();
    alias.spec.mode = BuildMode::Alias;
    let foreign = format!("r/other@sha256:{}", "1".repeat(64));
    let foreign = build("1", "a", 0, &json!({"context": foreign}));
    for bad in [renamed, alias, foreign] {
        let queue = queue_of([bad]);
        assert!(queue.take(&LIMITS).is_none());
    }
    assert!(queue_of([good]).take(&LIMITS).is_some());
}
