//! Malformed and unauthorized requests to the admin API.

use serde_json::json;
use tests::clients::{Admin, HttpClient};

use super::Offender;
use crate::replay_admin::{PASSWORD, administered};

const CONFIG: &str = "/api/admin/warm-runtime-configs/a";

#[tokio::test]
async fn invalid_warm_configs_are_rejected() {
    let Some(fixture) = administered() else {
        return;
    };
    let mut tool = Admin::new(fixture.api());
    tool.log_in(PASSWORD).await.unwrap();
    let offender = Offender {
        fixture: &fixture,
        wire: tool.wire,
    };
    // Fields of a config and values that they cannot have.
    let numbers = json!(["x", 1.5, -1, [], u64::MAX]);
    let others = json!([7, true, [7]]);
    let impossible = json!({
        "image": [null, "", "x".repeat(5000)], "working_dir": ["not/absolute"],
        "environment": [{"": "x"}, {"A=B": "x"}, {"A": "\u{0}"}, {"A": 1}],
        "fuse_s3_mount": [true], "count": [1_000_000_000],
    });
    let same = |fields: &[&'static str], values: &serde_json::Value| {
        let fields = fields
            .iter()
            .map(|field| ((*field).to_owned(), values.clone()));
        fields.collect::<Vec<_>>()
    };
    let mut all = same(
        &["run_as_user", "run_as_group", "fs_group", "count"],
        &numbers,
    );
    all.extend(same(
        &["image", "command", "environment", "working_dir"],
        &others,
    ));
    all.extend(impossible.as_object().unwrap().clone());
    let good = json!({"image": "debian:12", "command": ["true"], "working_dir": "/workspace"});
    for (field, values) in all {
        for value in values.as_array().unwrap() {
            let mut config = good.clone();
            config[&field] = value.clone();
            offender
                .gets(&[400], "PUT", CONFIG, config.to_string())
                .await;
        }
    }
    for body in ["", "null", "[]", "{", "{}", "\"a\"", "\u{fffd}"] {
        offender.gets(&[400], "PUT", CONFIG, body).await;
    }
    let long = "x".repeat(129);
    let refused = ["%00", "a%0Ab", &long, "%ff"].map(|name| (name, &[400][..], &[400, 404][..]));
    // Odd, and allowed.
    let odd = ["v1_current", "a%2Fb", "a/b", "..", "%C3%BC", "a%20b"];
    let odd = odd.map(|name| (name, &[200][..], &[200][..]));
    for (name, put, deleted) in refused.into_iter().chain(odd) {
        let path = format!("/api/admin/warm-runtime-configs/{name}");
        offender.gets(put, "PUT", &path, good.to_string()).await;
        offender.gets(deleted, "DELETE", &path, "").await;
    }
    offender.check_unharmed().await;
}

#[tokio::test]
async fn invalid_logins_and_tokens_are_rejected() {
    let Some(fixture) = administered() else {
        return;
    };
    let mut offender = Offender::new(&fixture);
    offender.wire = HttpClient::anonymous();
    let long = "a".repeat(1 << 20);
    let logins = json!([
        {}, [], {"challenge": 7, "hash": "00"}, {"challenge": "x", "hash": null},
        {"challenge": "x", "hash": "00"}, {"challenge": "\u{0}", "hash": "zz"},
        {"challenge": "ü.ü.ü", "hash": "ü"}, {"challenge": long, "hash": long},
    ]);
    for body in logins.as_array().unwrap() {
        let (path, body) = ("/api/admin/login", body.to_string());
        offender.gets(&[400, 413], "POST", path, body).await;
    }
    let long = "a".repeat(16_000);
    for token in [
        "",
        "x",
        "a.b.c",
        "e30.e30.e30",
        "....",
        &long,
        fixture.key(),
    ] {
        let bearer = format!("Bearer {token}");
        offender.wire = HttpClient::with_headers(&[("Authorization", &bearer)]);
        for (method, path) in [
            ("PUT", CONFIG),
            ("DELETE", CONFIG),
            ("GET", "/api/admin/api-keys"),
        ] {
            offender.gets(&[401], method, path, "{}").await;
        }
    }
    offender.check_unharmed().await;
}
