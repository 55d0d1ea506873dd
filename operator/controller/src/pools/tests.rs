use crds::pool::PoolTemplate;
use serde_json::json;

use super::*;
use crate::tests::{key, keys};

fn pool_of(template: PoolTemplate, replicas: u32) -> SandboxPoolSpec {
    SandboxPoolSpec {
        template,
        replicas,
        ..SandboxPoolSpec::default()
    }
}

fn env(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value: Some(value.into()),
        value_from: None,
    }
}

#[test]
fn pool_fills_only_absent_fields() {
    let spec = SandboxSpec {
        pool: Some("p".into()),
        working_dir: Some("/own".into()),
        env: vec![env("A", "own")],
        ..SandboxSpec::default()
    };
    let template = PoolTemplate {
        image: "pool:1".into(),
        working_dir: Some("/pool".into()),
        env: vec![env("A", "pool"), env("B", "pool")],
        resource_factor: Some(2.0),
        source: Some(Source {
            snapshot: "s".into(),
        }),
        ..PoolTemplate::default()
    };
    let filled = filled(&spec, &pool_of(template, 0));
    assert_eq!(filled.image.as_deref(), Some("pool:1"));
    assert_eq!(filled.working_dir.as_deref(), Some("/own"));
    assert_eq!(filled.env, [env("B", "pool"), env("A", "own")]);
    assert_eq!(filled.resource_factor, Some(2.0));
    assert_eq!(filled.source.unwrap().snapshot, "s");
}

#[test]
fn sandbox_deadline_overrides_pool_deadline() {
    let all = |seconds: [Option<u64>; 6]| {
        let [idle, run, start, paused, stopped, warm] =
            seconds.map(|s| s.map(|s| std::time::Duration::from_secs(s).into()));
        Some(Lifecycle {
            idle_timeout: idle,
            max_run_time: run,
            start_timeout: start,
            delete_paused_after: paused,
            delete_stopped_after: stopped,
            warm_resume_for: warm,
        })
    };
    let pool = all([1, 2, 3, 4, 5, 6].map(Some));
    let merged = |own| lifecycle(own, pool.as_ref());
    for field in 0..6 {
        let (mut own, mut expected) = ([None; 6], [1, 2, 3, 4, 5, 6].map(Some));
        // Never is an answer, too.
        own[field] = Some(0);
        expected[field] = Some(0);
        assert_eq!(merged(all(own)), all(expected), "{field}");
    }
    assert_eq!(merged(None), pool);
    assert_eq!(lifecycle(pool.clone(), None), pool);
    assert_eq!(lifecycle(None, None), None);
}

fn state(uid: &str, version: &str, image: &str) -> SandboxPool {
    let pool = json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": uid, "resourceVersion": version},
        "spec": {"template": {"image": image}},
    });
    serde_json::from_value(pool).unwrap()
}

#[tokio::test]
async fn stale_pool_state_is_ignored() {
    let index = Index::new(Arc::new(keys()));
    let pools = PoolIndex::new(Arc::new(index), Arc::default(), Arc::default());
    let spec = SandboxSpec {
        pool: Some("p".into()),
        ..SandboxSpec::default()
    };
    let image = || {
        let pool = pools.find("ns", &spec)?;
        Some(pool.spec.template.image.clone())
    };
    let key = key("p");
    pools.apply(state("first", "9", "a"));
    pools.apply_written(&key, state("first", "10", "b"));
    assert_eq!(image().as_deref(), Some("b"));
    pools.apply(state("first", "9", "a"));
    assert_eq!(image().as_deref(), Some("b"), "seen before it was written");
    pools.apply(state("second", "12", "c"));
    pools.apply_written(&key, state("first", "11", "d"));
    assert_eq!(image().as_deref(), Some("c"), "another one has the name");
    pools.remove(&key, &ObjectMeta::default());
    pools.apply_written(&key, state("second", "13", "e"));
    assert_eq!(image(), None, "gone");
}

#[tokio::test]
async fn pool_overlaps_with_one_that_serves_the_same_sandboxes_first() {
    let index = Index::new(Arc::new(keys()));
    let pools = PoolIndex::new(Arc::new(index), Arc::default(), Arc::default());
    let put = |name: &str, image: &str, tenants: &[&str], policy: &str| {
        let pool = json!({
            "metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"template": {"image": image}, "replicas": 1, "claimedBy": policy,
                "tenants": tenants},
        });
        pools.apply(serde_json::from_value(pool).unwrap());
    };
    put("a", "i", &["first", "second"], "Matching");
    put("b", "i", &["second"], "Matching");
    put("c", "i", &["third"], "Matching");
    put("d", "j", &[], "Matching");
    put("e", "i", &[], "Named");
    let other = |name: &str| {
        let pool = pools.get(&key(name)).unwrap();
        let same = |_: &Key, other: &Pool| other.spec.template == pool.spec.template;
        pools.overlapping(&key(name), &pool, same)
    };
    let found = ["a", "b", "c", "d", "e"].map(other);
    assert_eq!(found, [None, Some("a".to_owned()), None, None, None]);
}

#[test]
fn revision_depends_on_template_only() {
    let of = |image: &str, replicas| {
        let template = PoolTemplate {
            image: image.into(),
            ..PoolTemplate::default()
        };
        Pool::new("p".into(), pool_of(template, replicas)).revision
    };
    assert_eq!(of("a", 0), of("a", 1));
    assert_ne!(of("a", 0), of("b", 0));
    assert_eq!(of("a", 0).len(), 16);
}
