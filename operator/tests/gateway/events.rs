//! Event streams on a fake Kubernetes API: list, changes, and streams that continue.

use std::collections::HashSet;
use std::time::Duration;

use crds::sandbox::PodStatus;
use operator::kubernetes::watch::WatchSink;
use serde_json::{Value, json};
use testing::{FakeApi, ReceivedEvent};

use crate::support::build_client;
use crate::support::event_client::ids;
use crate::support::gateway_fixture::{
    GatewayFixture, KEY, OTHER_KEY, config, failed, key, ready, starting, tenants,
};

const A_MINUTE: Duration = Duration::from_mins(1);

/// Sandboxes of these sessions, delivered by the watch after its list.
fn with_sessions(sessions: &[&str]) -> (GatewayFixture, Vec<String>) {
    let fixture = GatewayFixture::new();
    let made = sessions.iter().map(|session| {
        let id = fixture.add_session(session, 60000, &starting(false));
        fixture.deliver(&id, &ready("10.0.0.1"));
        id
    });
    let ids = made.collect();
    (fixture, ids)
}

/// Removes fields that are different in each run.
fn redacted(mut events: Vec<ReceivedEvent>) -> Value {
    let events = events.iter_mut().map(|event| {
        if let Some(at) = event.data.get_mut("at") {
            assert!(at.as_str().unwrap().ends_with('Z'));
            *at = json!("[time]");
        }
        if let Some(since) = event.data.get_mut("idle_since").filter(|at| at.is_string()) {
            *since = json!("[time]");
        }
        let id = event.id.take();
        let version = id.map(|id| id.split_once('-').unwrap().0.to_owned());
        json!({"event": event.name, "version": version, "data": event.data})
    });
    events.collect()
}

#[tokio::test(start_paused = true)]
async fn stream_begins_with_a_list_and_continues_with_changes() {
    let (fixture, ids) = with_sessions(&["s1"]);
    let mut events = fixture.events().await;
    let mut seen = events.until("synced").await;
    fixture.deliver(&ids[0], &failed(PodStatus::CrashLoopBackOff));
    seen.push(events.expect().await);
    fixture.deliver_deletion(&ids[0]);
    seen.push(events.expect().await);
    insta::assert_json_snapshot!("events_of_a_sandbox", redacted(seen));
    events.assert_quiet_for(A_MINUTE).await;
    assert_eq!(events.comments, 4, "one each 15 seconds");
}

#[tokio::test(start_paused = true)]
async fn runtime_of_an_event_is_that_of_a_read_without_secrets() {
    let (fixture, ids) = with_sessions(&["s1"]);
    let listed = fixture.events().await.expect().await.data;
    let mut read = fixture.found(&format!("/runtime/{}", ids[0])).await;
    for secret in ["session_api_key", "pod_logs"] {
        assert!(read.as_object_mut().unwrap().remove(secret).is_some());
    }
    let mut listed = listed.as_object().unwrap().clone();
    assert_eq!(listed.remove("change"), Some(json!("listed")));
    assert!(listed.remove("at").is_some());
    assert_eq!(Value::Object(listed), read);
}

#[tokio::test(start_paused = true)]
async fn long_list_has_every_sandbox_once_and_its_changes_meanwhile() {
    let sessions: Vec<_> = (0..100).map(|n| format!("s{n}")).collect();
    let sessions: Vec<_> = sessions.iter().map(String::as_str).collect();
    let (fixture, mut made) = with_sessions(&sessions);
    made.sort();
    let mut events = fixture.events().await;
    let mut seen = vec![events.expect().await];
    // The first one was listed, and the last one is not yet.
    for id in [&made[0], &made[99]] {
        fixture.deliver(id, &failed(PodStatus::Failed));
    }
    seen.extend(events.until("synced").await);
    let listed: Vec<_> = seen
        .iter()
        .filter(|e| e.data["change"] == "listed")
        .collect();
    assert_eq!(listed.len(), 100);
    assert!(seen.iter().rev().skip(1).all(|event| event.id.is_none()));
    let last = listed.last().unwrap();
    assert_eq!(
        (&last.data["runtime_id"], &last.data["status"]),
        (&json!(made[99]), &json!("error"))
    );
    let changed: Vec<_> = seen
        .into_iter()
        .filter(|e| e.data["change"] == "changed")
        .collect();
    assert_eq!(ids(&changed), [&made[0]]);
    events.assert_quiet_for(A_MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn stream_continues_after_its_cursor_with_what_has_changed() {
    let (fixture, made) = with_sessions(&["s1", "s2", "s3"]);
    let mut events = fixture.synced_events().await;
    fixture.deliver(&made[0], &starting(true));
    events.expect().await;
    let cursor = events.cursor.clone().unwrap();
    drop(events);
    for status in [failed(PodStatus::Failed), ready("10.0.0.7")] {
        fixture.deliver(&made[1], &status);
    }
    fixture.deliver_deletion(&made[2]);
    let mut events = fixture.events_after(&cursor).await;
    let missed = events.until("resumed").await;
    let names: Vec<_> = missed.iter().map(|event| &*event.name).collect();
    assert_eq!(names, ["deleted", "runtime", "resumed"]);
    assert_eq!(ids(&missed), [&made[2], &made[1]]);
    assert_eq!(missed[1].data["status"], "running");
    assert_eq!(missed[1].data["change"], "changed");
    // From the query as well; the header is newer.
    for (query, header) in [
        (format!("?after={cursor}"), None),
        ("?after=1-0".to_owned(), Some(&*cursor)),
    ] {
        let mut events = fixture.events_as(KEY, &query, header).await;
        assert_eq!(events.until("resumed").await.len(), 3);
    }
    let cursor = events.cursor.clone().unwrap();
    let mut events = fixture.events_after(&cursor).await;
    assert_eq!(events.until("resumed").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn own_write_does_not_hide_an_earlier_change_of_another_sandbox() {
    let (fixture, made) = with_sessions(&["s1", "s2"]);
    let mut events = fixture.synced_events().await;
    let earlier = fixture.set_status(&made[0], &failed(PodStatus::Failed));
    // The response to a write arrives before the watch has delivered the earlier change.
    fixture.report(&made[1], &starting(true));
    assert_eq!(ids(&[events.expect().await]), [&made[1]]);
    let cursor = events.cursor.clone().unwrap();
    drop(events);
    fixture.index.deliver(&earlier);
    let mut events = fixture.events_after(&cursor).await;
    let mut missed = ids(&events.until("resumed").await).join(" ");
    if made[1] < made[0] {
        missed = missed.split(' ').rev().collect::<Vec<_>>().join(" ");
    }
    assert_eq!(missed, made.join(" "));
}

#[tokio::test(start_paused = true)]
async fn stream_continues_on_another_replica_and_waits_for_its_watch() {
    let (fixture, made) = with_sessions(&["s1", "s2"]);
    let other = GatewayFixture::beside(&fixture.api, config());
    for id in &made {
        other.index.deliver(&fixture.stored(id));
    }
    let mut events = fixture.synced_events().await;
    fixture.deliver(&made[0], &failed(PodStatus::Failed));
    events.expect().await;
    let cursor = events.cursor.clone().unwrap();
    let later = fixture.deliver(&made[1], &failed(PodStatus::Failed));
    let continued = other.events_after(&cursor);
    let deliver = async {
        other.index.deliver(&fixture.stored(&made[0]));
        other.index.deliver(&later);
    };
    let (mut events, ()) = tokio::join!(continued, deliver);
    assert_eq!(ids(&events.until("resumed").await), [&made[1]]);
}

#[tokio::test(start_paused = true)]
async fn cursor_that_cannot_be_continued_begins_with_a_list() {
    let (fixture, made) = with_sessions(&["s1"]);
    let mut events = fixture.synced_events().await;
    fixture.deliver(&made[0], &starting(true));
    events.expect().await;
    let cursor = events.cursor.clone().unwrap();
    // A replica that has listed the sandboxes later knows no deletion before.
    let fresh = GatewayFixture::unsynced(&fixture.api, config(), tenants());
    fresh.index.begin_list();
    fresh.index.deliver(&fixture.stored(&made[0]));
    fresh.index.retain(&HashSet::from([key(&made[0])]));
    let far = "18446744073709551615-00000000";
    for unusable in [&*cursor, "1-00000000", far, "a cursor", "7", ""] {
        let mut events = fresh.events_after(unusable).await;
        let listed = events.until("synced").await;
        assert_eq!(ids(&listed), [&made[0]], "{unusable}");
    }
    // Its own is usable, also before the first change.
    let cursor = fresh.synced_events().await.cursor.unwrap();
    let mut events = fresh.events_after(&cursor).await;
    assert_eq!(events.until("resumed").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn relist_tells_only_what_has_changed() {
    let (fixture, made) = with_sessions(&["s1", "s2", "s3"]);
    let mut events = fixture.synced_events().await;
    let before = events.cursor.clone().unwrap();
    fixture.index.begin_list();
    fixture.delete(&made[2]);
    fixture.set_status(&made[1], &failed(PodStatus::Failed));
    for id in &made[..2] {
        fixture.index.deliver(&fixture.stored(id));
    }
    let seen = made[..2].iter().map(|id| key(id)).collect();
    fixture.index.retain(&seen);
    let changed = [events.expect().await, events.expect().await];
    let names = changed.each_ref().map(|event| &*event.name);
    assert_eq!(
        (names, ids(&changed)),
        (["runtime", "deleted"], vec![&*made[1], &*made[2]])
    );
    events.assert_quiet_for(A_MINUTE).await;
    // Deletions before the list are not known one by one.
    let mut events = fixture.events_after(&before).await;
    assert_eq!(events.until("synced").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn sandboxes_of_others_are_never_seen() {
    let fixture = GatewayFixture::new();
    let mut events = fixture.synced_events().await;
    let mut of_other = fixture.events_as(OTHER_KEY, "", None).await;
    of_other.until("synced").await;
    let body = json!({"image": "debian", "session_id": "theirs"}).to_string();
    let (code, info) = fixture.call_as(OTHER_KEY, "POST", "/start", &body).await;
    assert_eq!(code, 201);
    let id = info["runtime_id"].as_str().unwrap().to_owned();
    fixture.deliver(&id, &ready("10.0.0.1"));
    // Made by kubectl, so it has no session.
    let plain = crds::Sandbox::new("plain", crds::sandbox::SandboxSpec::default());
    fixture.index.deliver(&fixture.put(&plain));
    fixture.deliver_deletion(&id);
    fixture.deliver_deletion("plain");
    assert_eq!(ids(&of_other.until("deleted").await), [&*id, &id, &id]);
    events.assert_quiet_for(A_MINUTE).await;
    of_other.assert_quiet_for(A_MINUTE).await;
    let (code, detail) = fixture
        .rejection_of_events(&format!("?runtime_id={id}"))
        .await;
    assert_eq!((code, &*detail), (404, "no runtime with this id"));
    let cursor = events.cursor.clone().unwrap();
    let mut events = fixture.events_after(&cursor).await;
    assert_eq!(events.until("resumed").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn stream_of_one_sandbox_has_its_events_only() {
    let (fixture, made) = with_sessions(&["s1", "s2"]);
    for id in &made {
        let mut events = fixture
            .events_as(KEY, &format!("?runtime_id={id}"), None)
            .await;
        assert_eq!(ids(&events.until("synced").await), [id]);
        for changed in &made {
            fixture.deliver(changed, &failed(PodStatus::Failed));
        }
        assert_eq!(ids(&[events.expect().await]), [id]);
        events.assert_quiet_for(A_MINUTE).await;
        let query = format!("?runtime_id={id}&after={}", events.cursor.unwrap());
        for changed in &made {
            fixture.deliver(changed, &ready("10.0.0.2"));
        }
        let mut events = fixture.events_as(KEY, &query, None).await;
        assert_eq!(ids(&events.until("resumed").await), [id]);
    }
}

#[tokio::test(start_paused = true)]
async fn builds_of_the_key_are_told_until_they_end() {
    let api = FakeApi::default();
    let fixture = build_client::fixture(&api);
    let mut events = fixture.synced_events().await;
    let mut of_other = fixture.events_as(OTHER_KEY, "", None).await;
    of_other.until("synced").await;
    let image = build_client::image("oh_v0.62.0_a_b");
    let dockerfile = testing::image_build::dockerfile(
        testing::image_build::Release::V0_62,
        testing::image_build::Rung::Scratch,
        "debian:12",
    );
    let context = testing::image_build::context(&dockerfile, 1);
    let id = fixture.build(&context, &image, &[]).await;
    let mut told = Vec::new();
    while told.last() != Some(&json!("SUCCESS")) {
        let event = events.expect().await;
        assert_eq!(
            (&*event.name, &event.data["build_id"]),
            ("build", &json!(id))
        );
        assert_eq!(event.data["image"], image);
        told.push(event.data["status"].clone());
    }
    let path = format!("/apis/openhands.dev/v1alpha1/namespaces/sandboxes/imagebuilds/{id}");
    let stored: crds::ImageBuild = serde_json::from_value(api.object(&path)).unwrap();
    fixture.gateway.image_builds().apply(stored);
    events.assert_quiet_for(A_MINUTE).await;
    of_other.assert_quiet_for(A_MINUTE).await;
    // A client that was away learns of an end of the last minutes.
    let mut again = fixture.events().await;
    let first = again.expect().await;
    assert_eq!(
        (&*first.name, &first.data["status"]),
        ("build", &json!("SUCCESS"))
    );
    again.until("synced").await;
}
