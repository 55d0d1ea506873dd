//! Bodies that are no JSON, too much of it, or not what was asked for.

use hyper::body::Bytes;
use serde_json::json;

use super::{ENDPOINTS, Offender};
use crate::fixture::fixture;

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
    let (open, close, long) = ("[".repeat(DEPTH), "]".repeat(DEPTH), "s".repeat(TOO_LARGE));
    let environment = format!("{{\"A\": {open}{close}}}");
    let large = [
        format!("{{\"session_id\": \"s\", \"image\": \"i\", \"environment\": {environment}}}"),
        open,
        "{\"a\":".repeat(DEPTH),
        " ".repeat(TOO_LARGE),
        format!("{{\"session_id\": \"{long}\"}}"),
    ];
    let texts = texts.into_iter().map(Bytes::from_static);
    texts.chain(large.map(Bytes::from)).collect()
}

#[tokio::test]
async fn malformed_bodies_are_rejected_by_every_endpoint() {
    let Some(fixture) = fixture() else { return };
    let offender = Offender::new(&fixture);
    for body in hopeless() {
        for (method, path) in ENDPOINTS {
            let status = offender.send(method, path, body.clone()).await;
            // The other fields of a body are read by `/start` alone.
            let read = path == "/start" || !body.starts_with(b"{");
            if read && ["/start", "/stop", "/pause", "/resume"].contains(&path) {
                let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
                assert!(matches!(status, 400 | 413), "{path} of {shown}: {status}");
            }
        }
    }
    offender.check_unharmed().await;
}

#[tokio::test]
async fn invalid_runtime_ids_are_rejected() {
    let Some(fixture) = fixture() else { return };
    let offender = Offender::new(&fixture);
    let long = "a".repeat(4096);
    let refused = json!([7, -1.5, true, [], ["a"], {"a": 1}]);
    let unknown = json!([
        "",
        "rt_123456",
        "None",
        "batch",
        "../list",
        "a/b",
        "\u{0}",
        "ü",
        "KQZVBNWMXATYPLOE",
        long,
    ]);
    for (ids, status) in [(refused, 400), (unknown, 404)] {
        for id in ids.as_array().unwrap() {
            let body = json!({"runtime_id": id}).to_string();
            for verb in ["/stop", "/pause", "/resume"] {
                offender.gets(&[status], "POST", verb, body.clone()).await;
            }
        }
    }
    offender.check_unharmed().await;
}

#[tokio::test]
async fn start_with_invalid_field_is_rejected() {
    let Some(fixture) = fixture() else { return };
    let offender = Offender::new(&fixture);
    let (texts, ids) = (
        json!([7, true, [], {}]),
        json!(["x", 1.5, -1, [], 4_294_967_296_u64]),
    );
    for (field, values) in [
        ("image", json!([7, true, [], {}, "", null])),
        (
            "session_id",
            json!([7, true, [], {}, "", null, "batch", "s".repeat(257)]),
        ),
        ("working_dir", json!([7, true, [], {}, "not/absolute"])),
        ("runtime_class", texts),
        ("image_pull_policy", json!([7, true, [], {}, "Sometimes"])),
        ("run_as_user", ids.clone()),
        ("run_as_group", ids.clone()),
        ("fs_group", ids),
        ("resource_factor", json!([0, -1, "2", [], -1e300])),
        ("command", json!([7, {}, [1], [["a"]], "an 'open quote"])),
        (
            "environment",
            json!([7, "A=1", ["A=1"], {"": "x"}, {"A=B": "x"}, {"A": "\u{0}"}]),
        ),
    ] {
        for value in values.as_array().unwrap() {
            let mut body = json!({"session_id": "s", "image": "debian:12", "command": ["true"]});
            body[field] = value.clone();
            offender
                .gets(&[400], "POST", "/start", body.to_string())
                .await;
        }
    }
    offender.check_unharmed().await;
}
