//! Elections in virtual time.

use tokio::time::{Instant, advance};

use super::*;
use crate::kubernetes::fake::FakeApi;

fn election(api: &FakeApi, identity: &str) -> Election {
    let candidacy = Candidacy {
        namespace: "ns".into(),
        name: "lease".into(),
        identity: identity.into(),
    };
    Election::new(api.client(), candidacy, Arc::default())
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_not_taken() {
    let api = FakeApi::default();
    let (mut one, mut two) = (election(&api, "one"), election(&api, "two"));
    one.win().await;
    tokio::select! {
        _ = one.hold() => panic!("lost"),
        () = two.win() => panic!("taken"),
        () = sleep(Duration::from_mins(10)) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_is_taken_within_seven_seconds() {
    let api = FakeApi::default();
    let (mut one, mut two) = (election(&api, "one"), election(&api, "two"));
    one.win().await;
    drop(one);
    let crashed = Instant::now();
    two.win().await;
    assert!(crashed.elapsed() >= DURATION);
    assert!(crashed.elapsed() <= DURATION + LOOK);
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let api = FakeApi::default();
    let (mut one, mut two) = (election(&api, "one"), election(&api, "two"));
    one.win().await;
    one.release().await;
    let released = Instant::now();
    two.win().await;
    assert!(released.elapsed() <= LOOK);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_api_server_surrenders_before_it_can_be_replaced() {
    let api = FakeApi::default();
    let mut one = election(&api, "one");
    one.win().await;
    let started = Instant::now();
    api.set_away(true);
    assert!(matches!(one.hold().await, LeaderError::Expired));
    assert!(started.elapsed() < DURATION);
}

#[tokio::test(start_paused = true)]
async fn a_short_absence_of_the_api_server_is_survived() {
    let api = FakeApi::default();
    let mut one = election(&api, "one");
    one.win().await;
    let blip = async {
        sleep(Duration::from_millis(1900)).await;
        api.set_away(true);
        sleep(Duration::from_millis(1500)).await;
        api.set_away(false);
        sleep(Duration::from_mins(1)).await;
    };
    tokio::select! {
        lost = one.hold() => panic!("{lost}"),
        () = blip => {}
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_replaced_knows_it() {
    let api = FakeApi::default();
    let (mut one, mut two) = (election(&api, "one"), election(&api, "two"));
    one.win().await;
    // The whole process slept.
    two.win().await;
    advance(Duration::from_secs(1)).await;
    assert!(matches!(one.hold().await, LeaderError::Replaced(holder) if holder == "two"));
}

#[tokio::test(start_paused = true)]
async fn a_tenure_ends_before_another_can_begin() {
    let api = FakeApi::default();
    let (mut one, mut two) = (election(&api, "one"), election(&api, "two"));
    let (first, second) = (one.tenure(), two.tenure());
    assert!(!first.holds());
    one.win().await;
    assert!(first.holds());
    // Nobody renews: the process is stopped.
    tokio::join!(two.win(), async {
        sleep(SURRENDER).await;
        assert!(!first.holds() && !second.holds());
    });
    assert!(second.holds() && !first.holds());
    two.release().await;
    assert!(!second.holds());
}

#[tokio::test(start_paused = true)]
async fn a_lease_out_of_reach_is_named() {
    let api = FakeApi::default();
    api.set_away(true);
    let mut one = election(&api, "one");
    let vitals = one.vitals.clone();
    tokio::select! {
        () = one.win() => panic!("won"),
        () = sleep(Duration::from_secs(5)) => {}
    }
    let missing = vitals.health.missing();
    assert!(
        missing[0].starts_with("lease ns/lease cannot be had"),
        "{missing:?}"
    );
    api.set_away(false);
    one.win().await;
    assert!(vitals.health.missing().is_empty());
}

#[tokio::test(start_paused = true)]
async fn clocks_of_other_machines_do_not_matter() {
    for time in ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let api = FakeApi::default();
        let lease = serde_json::json!({
            "metadata": {"name": "lease"},
            "spec": {"holderIdentity": "one", "renewTime": time, "leaseDurationSeconds": 6},
        });
        let leases: Api<Lease> = Api::namespaced(api.client(), "ns");
        let lease = serde_json::from_value(lease).unwrap();
        leases.create(&PostParams::default(), &lease).await.unwrap();
        let seen = Instant::now();
        election(&api, "two").win().await;
        assert_eq!(seen.elapsed().as_secs(), DURATION.as_secs(), "{time}");
    }
}
