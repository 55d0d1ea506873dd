//! Elections in virtual time.

use tokio::time::{Instant, advance};

use super::*;
use testing::FakeApi;

/// Two processes, of which the first one leads.
async fn two() -> (LeaderElection, LeaderElection) {
    let api = FakeApi::default();
    let mut one = election(&api, "one");
    one.acquire().await;
    (one, election(&api, "two"))
}

fn election(api: &FakeApi, identity: &str) -> LeaderElection {
    let config = LeaseConfig {
        namespace: "ns".into(),
        name: "lease".into(),
        identity: identity.into(),
    };
    LeaderElection::new(api.client(), config, Arc::default())
}

#[tokio::test(start_paused = true)]
async fn renewed_lease_is_not_taken() {
    let (mut one, mut two) = two().await;
    tokio::select! {
        _ = one.renew_until_lost() => panic!("lost"),
        () = two.acquire() => panic!("taken"),
        () = sleep(Duration::from_mins(10)) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn unrenewed_lease_is_taken_within_seven_seconds() {
    let (one, mut two) = two().await;
    drop(one);
    let crashed = Instant::now();
    two.acquire().await;
    assert!(crashed.elapsed() >= LEASE_DURATION);
    assert!(crashed.elapsed() <= LEASE_DURATION + STANDBY_POLL_INTERVAL);
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_taken_at_once() {
    let (one, mut two) = two().await;
    one.release().await;
    let released = Instant::now();
    two.acquire().await;
    assert!(released.elapsed() <= STANDBY_POLL_INTERVAL);
}

#[tokio::test(start_paused = true)]
async fn leader_gives_up_before_lease_expires_without_api_server() {
    let api = FakeApi::default();
    let mut one = election(&api, "one");
    one.acquire().await;
    let started = Instant::now();
    api.set_unavailable(true);
    assert!(matches!(one.renew_until_lost().await, LeaderError::Expired));
    assert!(started.elapsed() < LEASE_DURATION);
}

#[tokio::test(start_paused = true)]
async fn leader_survives_short_api_server_outage() {
    let api = FakeApi::default();
    let mut one = election(&api, "one");
    one.acquire().await;
    let blip = async {
        sleep(Duration::from_millis(1900)).await;
        api.set_unavailable(true);
        sleep(Duration::from_millis(1500)).await;
        api.set_unavailable(false);
        sleep(Duration::from_mins(1)).await;
    };
    tokio::select! {
        lost = one.renew_until_lost() => panic!("{lost}"),
        () = blip => {}
    }
}

#[tokio::test(start_paused = true)]
async fn leader_reports_replaced_when_lease_is_taken() {
    let (mut one, mut two) = two().await;
    // The process was suspended.
    two.acquire().await;
    advance(Duration::from_secs(1)).await;
    assert!(
        matches!(one.renew_until_lost().await, LeaderError::Replaced(holder) if holder == "two")
    );
}

#[tokio::test(start_paused = true)]
async fn write_fence_closes_before_lease_can_be_taken() {
    let api = FakeApi::default();
    let (mut one, mut two) = (election(&api, "one"), election(&api, "two"));
    let (first, second) = (one.write_fence(), two.write_fence());
    assert!(!first.allows_writes());
    one.acquire().await;
    assert!(first.allows_writes());
    // The process is suspended and does not renew.
    tokio::join!(two.acquire(), async {
        sleep(RENEW_DEADLINE).await;
        assert!(!first.allows_writes() && !second.allows_writes());
    });
    assert!(second.allows_writes() && !first.allows_writes());
    two.release().await;
    assert!(!second.allows_writes());
}

#[tokio::test(start_paused = true)]
async fn unreachable_lease_is_a_readiness_failure() {
    let api = FakeApi::default();
    api.set_unavailable(true);
    let mut one = election(&api, "one");
    let vitals = one.vitals.clone();
    tokio::select! {
        () = one.acquire() => panic!("won"),
        () = sleep(Duration::from_secs(5)) => {}
    }
    let missing = vitals.health.readiness_failures();
    assert!(
        missing[0].starts_with("cannot acquire lease ns/lease"),
        "{missing:?}"
    );
    api.set_unavailable(false);
    one.acquire().await;
    assert!(vitals.health.readiness_failures().is_empty());
}

#[tokio::test(start_paused = true)]
async fn expiry_ignores_clocks_of_other_machines() {
    for time in ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let api = FakeApi::default();
        let lease = serde_json::json!({
            "metadata": {"name": "lease"},
            "spec": {"holderIdentity": "one", "renewTime": time, "leaseDurationSeconds": 6},
        });
        let path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lease";
        api.put(path, lease);
        let seen = Instant::now();
        election(&api, "two").acquire().await;
        assert_eq!(seen.elapsed().as_secs(), LEASE_DURATION.as_secs(), "{time}");
    }
}
