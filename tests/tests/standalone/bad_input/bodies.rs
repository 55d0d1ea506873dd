//! Bodies that are no JSON, too much of it, or not what was asked for.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::{ENDPOINTS, check_unharmed, send};
use crate::fixture::{Fixture, fixture};

const DEPTH: usize = 100_000;
const TOO_LARGE: usize = 3 << 20;

/// Bodies out of which no endpoint can make anything.
fn hopeless() -> Vec<Bytes> {
    let texts: [&[u8]; 13] = [
        b"null",
        b"[]",
        b"7",
        b"\"text\"",
        b"true",
        b"{",
        b"{\"session_id\":",
        b"nonsense",
        b"\xff\xfe{}",
        b"{\"session_id\": \"\xff\", \"image\": \"i\"}",
        b"{\"session_id\": \"\\ud800\", \"image\": \"i\"}",
        b"{\"resource_factor\": 1e999, \"session_id\": \"s\", \"image\": \"i\"}",
        b"{\"session_id\": NaN, \"image\": \"i\"}",
    ];
    let mut all: Vec<_> = texts
        .iter()
        .map(|text| Bytes::copy_from_slice(text))
        .collect();
    all.push(Bytes::from("[".repeat(DEPTH)));
    all.push(Bytes::from("{\"a\":".repeat(DEPTH)));
    let nested = "[".repeat(DEPTH) + &"]".repeat(DEPTH);
    let deep = format!(
        "{{\"session_id\": \"s\", \"image\": \"i\", \"environment\": {{\"A\": {nested}}}}}"
    );
    all.push(Bytes::from(deep));
    all.push(Bytes::from(vec![b' '; TOO_LARGE]));
    all.push(Bytes::from(format!(
        "{{\"session_id\": \"{}\"}}",
        "s".repeat(TOO_LARGE)
    )));
    all
}

#[tokio::test]
async fn hopeless_bodies_are_refused_by_every_endpoint_that_takes_one() {
    let Some(fixture) = fixture() else { return };
    let wire = fixture.wire();
    for body in hopeless() {
        for (method, path) in ENDPOINTS {
            let status = send(&wire, &fixture, method, path, body.clone()).await;
            // The other fields of a body are read by `/start` alone.
            let read = path == "/start" || !body.starts_with(b"{");
            if read && ["/start", "/stop", "/pause", "/resume"].contains(&path) {
                let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
                assert!(matches!(status, 400 | 413), "{path} of {shown}: {status}");
            }
        }
    }
    check_unharmed(&fixture).await;
}

#[tokio::test]
async fn a_runtime_id_of_another_type_is_refused() {
    let Some(fixture) = fixture() else { return };
    let wire = fixture.wire();
    for id in [
        json!(7),
        json!(-1.5),
        json!(true),
        json!([]),
        json!(["a"]),
        json!({"a": 1}),
    ] {
        let body = Bytes::from(json!({"runtime_id": id}).to_string());
        for verb in ["/stop", "/pause", "/resume"] {
            assert_eq!(
                send(&wire, &fixture, "POST", verb, body.clone()).await,
                400,
                "{verb} {id}"
            );
        }
    }
    let odd = [
        "",
        "rt_123456",
        "None",
        "batch",
        "../list",
        "a/b",
        "\u{0}",
        "ü",
        "KQZVBNWMXATYPLOE",
    ];
    let long = "a".repeat(4096);
    for id in odd.into_iter().chain([long.as_str()]) {
        let body = Bytes::from(json!({"runtime_id": id}).to_string());
        for verb in ["/stop", "/pause", "/resume"] {
            assert_eq!(
                send(&wire, &fixture, "POST", verb, body.clone()).await,
                404,
                "{verb} {id:?}"
            );
        }
    }
    check_unharmed(&fixture).await;
}

/// Fields of `/start` and values that they cannot have.
fn impossible() -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    let text = [
        "image",
        "session_id",
        "working_dir",
        "runtime_class",
        "image_pull_policy",
    ];
    for field in text {
        all.extend([json!(7), json!(true), json!([]), json!({})].map(|value| (field, value)));
    }
    for field in ["run_as_user", "run_as_group", "fs_group"] {
        let values = [
            json!("x"),
            json!(1.5),
            json!(-1),
            json!([]),
            json!(4_294_967_296_u64),
        ];
        all.extend(values.map(|value| (field, value)));
    }
    let factors = [json!(0), json!(-1), json!("2"), json!([]), json!(-1e300)];
    all.extend(factors.map(|value| ("resource_factor", value)));
    let commands = [
        json!(7),
        json!({}),
        json!([1]),
        json!([["a"]]),
        json!("an 'open quote"),
    ];
    all.extend(commands.map(|value| ("command", value)));
    let environments = [
        json!(7),
        json!("A=1"),
        json!(["A=1"]),
        json!({"": "x"}),
        json!({"A=B": "x"}),
    ];
    all.extend(environments.map(|value| ("environment", value)));
    all.extend([
        ("environment", json!({"A": "\u{0}"})),
        ("image", json!("")),
        ("image", Value::Null),
        ("session_id", json!("")),
        ("session_id", Value::Null),
        ("session_id", json!("batch")),
        ("session_id", json!("s".repeat(257))),
        ("working_dir", json!("not/absolute")),
        ("image_pull_policy", json!("Sometimes")),
    ]);
    all
}

#[tokio::test]
async fn a_start_with_an_impossible_field_is_refused() {
    let Some(fixture) = fixture() else { return };
    let wire = fixture.wire();
    for (field, value) in impossible() {
        let mut body = json!({"session_id": "s", "image": "debian:12", "command": ["true"]});
        body[field] = value.clone();
        let body = Bytes::from(body.to_string());
        let status = send(&wire, &fixture, "POST", "/start", body).await;
        assert_eq!(status, 400, "{field} of {value}");
    }
    check_unharmed(&fixture).await;
}
