//! Usage of a tenant beside its limits, and the headers of the rate limit.

use std::time::Duration;

use axum::body::Body;
use clap::{Args as _, Command, FromArgMatches as _};
use crds::conditions::Reason;
use crds::sandbox::{Phase, PoolSnapshot, SandboxStatus};
use http::{HeaderMap, Request};
use operator::gateway::GatewayConfig;
use serde_json::{Value, json};
use tokio::time::advance;

use crate::support::gateway_fixture::{
    GatewayFixture, KEY, OTHER_KEY, config, limited, ready, starting,
};
use testing::FakeApi;

#[tokio::test(start_paused = true)]
async fn usage_counts_what_the_quota_counts() {
    let limits = json!({"maxSandboxes": 5, "maxCpu": "16", "callsPerSecond": 10});
    let fixture = limited(&limits);
    let in_phase = |phase, reason| SandboxStatus {
        phase,
        reason,
        ..SandboxStatus::default()
    };
    for (session, factor, status) in [
        ("running", 2.0, ready("10.0.0.9")),
        ("starting", 1.0, starting(false)),
        ("pausing", 1.0, in_phase(Phase::Pausing, Some(Reason::Idle))),
        ("paused", 8.0, in_phase(Phase::Paused, Some(Reason::Idle))),
        (
            "failed",
            8.0,
            in_phase(Phase::Failed, Some(Reason::CrashLoop)),
        ),
        (
            "waits",
            8.0,
            in_phase(Phase::Pending, Some(Reason::QuotaExceeded)),
        ),
    ] {
        let start = json!({"session_id": session, "resource_factor": factor});
        let (code, info) = fixture.start(start).await;
        assert_eq!(code, 201, "{info}");
        fixture.report(info["runtime_id"].as_str().unwrap(), &status);
    }
    let (_, running) = fixture.get("/sessions/running").await;
    let taken = json!({"runtime_id": running["runtime_id"], "level": "Workspace"});
    let (code, snapshot) = fixture.post("/snapshots", &taken).await;
    assert_eq!(code, 201, "{snapshot}");
    insta::assert_json_snapshot!("usage_of_a_tenant", fixture.found("/usage").await);
    let (_, other) = fixture.call_as(OTHER_KEY, "GET", "/usage", "").await;
    assert_eq!(other["sandboxes"], json!({"used": 0, "limit": null}));
    assert_eq!(fixture.call_as("wrong", "GET", "/usage", "").await.0, 401);
}

/// Defaults of the installation, and what the sandbox took from its pool.
#[tokio::test(start_paused = true)]
async fn usage_has_the_resources_that_the_controller_gives() {
    let flags = [
        "gateway",
        "--default-limits=memory=1Gi",
        "--max-resources=cpu=3",
    ];
    let fixture = GatewayFixture::beside(&FakeApi::default(), with_flags(&flags));
    let of_defaults = fixture.started("defaults").await;
    fixture.report(&of_defaults, &ready("10.0.0.9"));
    let (_, usage) = fixture.get("/usage").await;
    let used =
        |usage: &Value| ["cpu_millicores", "memory_bytes"].map(|name| usage[name]["used"].clone());
    assert_eq!(used(&usage), [json!(2000), json!(1_u64 << 30)]);

    let template = json!({"image": "i", "resources": {"limits": {"cpu": "64", "memory": "4Gi"}}});
    let mut pooled = fixture.stored(&of_defaults);
    pooled.spec.pool = Some("p".into());
    pooled.status.as_mut().unwrap().pool = Some(PoolSnapshot {
        name: "p".into(),
        revision: "1".into(),
        spec: json!({"template": template}),
    });
    let stored = fixture.put(&pooled);
    fixture.index.apply(&stored).unwrap();
    let (_, usage) = fixture.get("/usage").await;
    assert_eq!(used(&usage), [json!(3000), json!(4_u64 << 30)]);
}

#[tokio::test(start_paused = true)]
async fn usage_is_answered_while_the_api_server_is_away() {
    let fixture = GatewayFixture::new();
    fixture.started("s1").await;
    fixture.api.set_silent(true);
    let usage = fixture.found("/usage").await;
    assert_eq!(usage["phases"]["pending"], 1);
    assert_eq!(usage["snapshots"]["used"], json!(null));
}

#[tokio::test(start_paused = true)]
async fn counted_calls_have_headers_of_the_rate_limit() {
    let fixture = limited(&json!({"callsPerSecond": 10}));
    let first = headers(&fixture, KEY, "/list").await;
    assert_eq!(first, [Some(21), Some(20), Some(1)]);
    for _ in 0..19 {
        headers(&fixture, KEY, "/list").await;
    }
    assert_eq!(
        headers(&fixture, KEY, "/usage").await,
        [Some(21), Some(0), Some(3)]
    );
    advance(Duration::from_secs(1)).await;
    // Polls are not counted, nor is a call without a known key.
    assert_eq!(headers(&fixture, KEY, "/sessions/s1").await, [None; 3]);
    assert_eq!(headers(&fixture, "wrong", "/list").await, [None; 3]);
    assert_eq!(
        headers(&fixture, KEY, "/list").await,
        [Some(21), Some(9), Some(2)]
    );
}

#[tokio::test(start_paused = true)]
async fn rejected_calls_have_headers_of_the_rate_limit() {
    let fixture = limited(&json!({"callsPerSecond": 10}));
    let calls = vec!["/list".into(); 71];
    let all = fixture.get_all(&calls);
    let (_, rejected) = tokio::join!(all, headers(&fixture, KEY, "/list"));
    assert_eq!(rejected, [Some(21), Some(0), Some(8)]);
}

#[tokio::test(start_paused = true)]
async fn keys_without_a_rate_limit_get_no_headers() {
    let fixture = limited(&json!({"callsPerSecond": 0}));
    assert_eq!(headers(&fixture, KEY, "/list").await, [None; 3]);
    assert_eq!(
        fixture.found("/usage").await["calls_per_second"],
        json!(null)
    );
}

/// The configuration of a gateway with these flags of resources.
fn with_flags(flags: &[&str]) -> GatewayConfig {
    let command = GatewayConfig::augment_args(Command::new("gateway"));
    let parsed = GatewayConfig::from_arg_matches(&command.get_matches_from(flags)).unwrap();
    GatewayConfig {
        resources: parsed.resources,
        ..config()
    }
}

/// Limit, remaining calls and seconds until all are available.
async fn headers(fixture: &GatewayFixture, key: &str, path: &str) -> [Option<u64>; 3] {
    let request = Request::get(path).header("host", "api.example.com");
    let request = request.header("x-api-key", key).body(Body::empty());
    let response = fixture.send(request.unwrap()).await;
    let number = |headers: &HeaderMap, name| headers.get(name)?.to_str().ok()?.parse().ok();
    ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]
        .map(|name| number(response.headers(), name))
}
