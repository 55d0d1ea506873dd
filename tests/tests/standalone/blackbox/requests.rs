//! Items 6, 7, 8 and 10: what is asked of the API, and what it lists.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::fixture::{CALL_TIMEOUT, Fixture, text};

#[tokio::test]
async fn item_6_null_ids_do_nothing_and_unknown_ones_are_not_found() {
    let Some(fixture) = Fixture::set("black-box item 6") else {
        return;
    };
    for verb in ["stop", "pause"] {
        for nothing in [json!({"runtime_id": null}), json!({})] {
            let (status, body) = fixture.post(verb, &nothing).await;
            assert_eq!((status, body.is_object()), (200, true), "{verb}: {body}");
        }
    }
    for verb in ["stop", "pause", "resume"] {
        let (status, body) = fixture
            .post(verb, &json!({"runtime_id": "kqzvbnwmxatyploe"}))
            .await;
        assert_eq!(
            (status, body["detail"].is_string()),
            (404, true),
            "{verb}: {body}"
        );
    }
}

#[tokio::test]
async fn item_7_lists_have_what_lives_and_batches_are_positional() {
    let Some(fixture) = Fixture::set("black-box item 7") else {
        return;
    };
    let mut ids = Vec::new();
    for sid in ["runs", "paused", "stopped"] {
        let (_, info) = fixture.start(sid, &json!({})).await;
        ids.push(json!({"runtime_id": info["runtime_id"]}));
    }
    fixture.post("pause", &ids[1]).await;
    fixture.post("stop", &ids[2]).await;
    // One that kubectl made has no session, as a member of a warm pool has none.
    let sample = ["apply", "-f", "manifests/samples/sandbox.yaml"];
    fixture.standalone.run("kubectl", &sample);
    let get = async |path: &str| {
        let url = format!("{}{path}", fixture.api());
        fixture
            .wire()
            .get(&url, CALL_TIMEOUT)
            .await
            .unwrap()
            .success()
            .unwrap()
    };
    let list = get("/list").await;
    assert_eq!(list["total"], 1, "{list}");
    assert_eq!(list["runtimes"].as_array().unwrap().len(), 1);
    assert_eq!(list["runtimes"][0]["session_id"], "runs");

    let asked: Vec<String> = (0..200)
        .map(|n| match n {
            7 => "runs".into(),
            100 => "paused".into(),
            199 => "stopped".into(),
            n => format!("nobody{n}"),
        })
        .collect();
    let batch = get(&format!("/sessions/batch?ids={}", asked.join("&ids="))).await;
    let batch = batch.as_array().unwrap();
    assert_eq!(batch.len(), 200);
    for (sid, entry) in asked.iter().zip(batch) {
        if sid.starts_with("nobody") {
            assert!(entry.is_null(), "{sid}: {entry}");
        } else {
            assert_eq!(entry["session_id"], sid.as_str());
        }
    }
    assert_eq!(get("/sessions/batch").await, json!([]));
}

#[tokio::test]
async fn item_8_a_burst_of_64_starts_meets_no_refusal() {
    let Some(fixture) = Fixture::set("black-box item 8") else {
        return;
    };
    let wire = fixture.wire();
    let starts = (0..64).map(|number| {
        let body = json!({
            "session_id": format!("s{number}"), "image": "debian:12", "command": ["sleep", "600"],
        });
        let (wire, url) = (wire.clone(), format!("{}/start", fixture.api()));
        async move { wire.post(&url, &body, CALL_TIMEOUT).await.unwrap() }
    });
    let started = join_all(starts).await;
    let mut ids = std::collections::HashSet::new();
    for reply in &started {
        assert_eq!(reply.status, 201, "{reply:?}");
        ids.insert(text(&reply.json().unwrap(), "runtime_id"));
    }
    assert_eq!(ids.len(), 64);
    for (method, path) in [
        ("GET", "/sessions/none"),
        ("GET", "/nowhere"),
        ("PUT", "/start"),
    ] {
        let url = format!("{}{path}", fixture.api());
        let method = method.parse().unwrap();
        let reply = wire
            .send(method, &url, "{}".into(), CALL_TIMEOUT)
            .await
            .unwrap();
        assert!(reply.json().unwrap()["detail"].is_string(), "{path}");
    }
}

#[tokio::test]
async fn item_10_commands_factors_and_classes_of_all_kinds() {
    let Some(fixture) = Fixture::set("black-box item 10") else {
        return;
    };
    let words = json!(["/usr/local/bin/openhands-agent-server", "--port", "60000"]);
    let line = json!("/usr/local/bin/openhands-agent-server --port 60000");
    let cases: [(&str, Value); 6] = [
        ("list", json!({"command": words})),
        ("line", json!({"command": line, "resource_factor": 1})),
        ("factor", json!({"resource_factor": 4.0})),
        ("sysbox", json!({"runtime_class": "sysbox-runc"})),
        ("gvisor", json!({"runtime_class": "gvisor"})),
        (
            "odd",
            json!({"environment": {"N": 1, "B": true, "X": null}, "field_of_tomorrow": [1]}),
        ),
    ];
    for (sid, more) in &cases {
        let (status, info) = fixture.start(sid, more).await;
        assert_eq!(status, 201, "{sid}: {info}");
    }
    for (sid, more) in &cases {
        let info = fixture.ready(sid).await;
        let command = more.get("command").unwrap_or(&words);
        assert_eq!(&info["command"], command, "{sid}");
    }
    assert_eq!(fixture.session("factor").await["resource_factor"], 4.0);
}
