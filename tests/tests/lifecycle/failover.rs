//! Two controllers and more: one acts, another one goes on when it ends, and never two at once.

use std::collections::BTreeSet;
use std::time::Duration;

use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use operator::controller::ControllerError;
use tests::fault_injection::Outage;
use tests::test_cluster::{Link, SeededRng, TestCluster, TestController};
use tokio::time::{Instant, sleep, timeout};

/// Budget of a failover after a crash (design: at most 8 s).
const AFTER_CRASH: Duration = Duration::from_secs(8);
/// Budget after an orderly end (design: at most 2 s).
const AFTER_SHUTDOWN: Duration = Duration::from_secs(2);

/// An installation with a leader and a standby whose caches are warm.
async fn pair() -> (TestCluster, TestController, TestController) {
    let cluster = TestCluster::without_controller();
    let leader = cluster.candidate("candidate-a");
    leader.wait_leading().await;
    let standby = cluster.candidate("candidate-b");
    sleep(Duration::from_secs(5)).await;
    assert!(!standby.has_metric("sandbox_operator_leader 1"));
    (cluster, leader, standby)
}

#[tokio::test(start_paused = true)]
async fn standby_takes_over_in_time_when_leader_crashes() {
    // At any moment between two renewals, and with watches that lag.
    for (millis, lag) in [(0, 0), (350, 2), (700, 0), (1050, 2), (1400, 0), (1999, 2)] {
        let (cluster, leader, standby) = pair().await;
        cluster.faults().set_watch_lag(Duration::from_secs(lag));
        sleep(Duration::from_millis(millis)).await;
        // The leader does not live to see it.
        leader.crash().await;
        let crashed = Instant::now();
        cluster.create("a").await;
        cluster.wait_for_write("candidate-b").await;
        let took = crashed.elapsed();
        assert!(took <= AFTER_CRASH, "{millis}: {took:?}");
        cluster.wait_for_phase("a", Phase::Running).await;
        assert_eq!(cluster.assert_one_leader_at_a_time(), 2);
        drop(standby);
    }
}

#[tokio::test(start_paused = true)]
async fn standby_takes_over_after_orderly_shutdown() {
    for lag in [0, 1] {
        let (cluster, leader, _standby) = pair().await;
        cluster.faults().set_watch_lag(Duration::from_secs(lag));
        cluster.running("a").await;
        cluster.delete_pod_now("a").await;
        let asked = Instant::now();
        leader.shut_down().await.unwrap();
        cluster.wait_for_write("candidate-b").await;
        assert!(asked.elapsed() <= AFTER_SHUTDOWN, "{:?}", asked.elapsed());
        assert_eq!(cluster.assert_one_leader_at_a_time(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_fails_readiness_and_finishes_reconciles() {
    let (cluster, leader, _standby) = pair().await;
    cluster.create("a").await;
    // In the midst of a pass: each of its writes takes a while.
    cluster.faults().set_latency(Duration::from_millis(300));
    cluster.wait_for_write("candidate-a").await;
    let vitals = leader.vitals.clone();
    let ending = tokio::spawn(leader.shut_down());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(vitals.health.readiness_failures(), ["shutting down"]);
    ending.await.unwrap().unwrap();
    // It finished its reconcile: after the claim the Pod, and then nothing more.
    let mut by_first = cluster.writes_so_far();
    by_first.retain(|(by, _)| by == "candidate-a");
    let last = by_first.last().map(|(_, w)| w.request.resource.as_str());
    assert_eq!(last, Some("pods"), "{by_first:?}");
    cluster.faults().set_latency(Duration::ZERO);
    cluster.wait_for_phase("a", Phase::Running).await;
    cluster.assert_one_leader_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn partitioned_leader_stops_before_standby_starts() {
    for link in [Link::Silent, Link::Refused] {
        let (cluster, leader, _standby) = pair().await;
        // Work for both: the one that is cut off keeps trying.
        for name in ["a", "b", "c"] {
            cluster.running(name).await;
        }
        leader.set_link(link);
        let cut = Instant::now();
        cluster.delete_pod_now("a").await;
        let lost = timeout(AFTER_CRASH, leader.wait_ended()).await.unwrap();
        let leadership = matches!(lost, Err(ControllerError::Leadership(_)));
        assert!(leadership, "{lost:?}");
        let written = cluster.writes_so_far();
        assert!(written.iter().all(|(by, _)| by != "candidate-b"));
        cluster.wait_for_write("candidate-b").await;
        assert!(cut.elapsed() <= AFTER_CRASH, "{:?}", cut.elapsed());
        cluster.wait_for_phase("a", Phase::Running).await;
        assert_eq!(cluster.assert_one_leader_at_a_time(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn leader_stays_leader_when_link_breaks_briefly() {
    let (cluster, leader, _standby) = pair().await;
    leader.set_link(Link::Silent);
    sleep(Duration::from_millis(1500)).await;
    leader.set_link(Link::Up);
    sleep(Duration::from_mins(5)).await;
    assert!(!leader.has_ended());
    cluster.running("a").await;
    assert_eq!(cluster.assert_one_leader_at_a_time(), 1);
}

#[tokio::test(start_paused = true)]
async fn api_outage_ends_the_leader_and_a_standby_takes_over() {
    for outage in [Outage::Refuse, Outage::Hang] {
        let (cluster, leader, standby) = pair().await;
        cluster.running("a").await;
        cluster.faults().set_outage(outage);
        let lost = timeout(AFTER_CRASH, leader.wait_ended()).await.unwrap();
        assert!(matches!(lost, Err(ControllerError::Leadership(_))));
        // The process is restarted before the server is back.
        let again = cluster.candidate("candidate-c");
        sleep(Duration::from_mins(3)).await;
        let missing = again.vitals.health.readiness_failures();
        let problem = "the API server has not responded for ";
        assert!(missing[0].starts_with(problem), "{missing:?}");
        assert!(again.vitals.health.liveness_failures().is_empty());
        assert!(!standby.has_ended() && !again.has_ended());

        cluster.faults().set_outage(Outage::None);
        let back = Instant::now();
        cluster.running("b").await;
        // Within the longest time that a request of before may still hang, and a look.
        let took = back.elapsed();
        assert!(took <= Duration::from_secs(12), "{outage:?} {took:?}");
        assert_eq!(cluster.assert_one_leader_at_a_time(), 2);
        sleep(Duration::from_secs(36)).await;
        assert!(again.vitals.health.readiness_failures().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_one_leader_under_chaos() {
    let cluster = TestCluster::without_controller();
    let faults = cluster.faults();
    faults.set_watch_lag(Duration::from_millis(700));
    let mut random = SeededRng::new(0x5eed_1234_9876_abcd);
    let mut candidates = Vec::new();
    for n in 0..40 {
        while candidates.len() < 3 {
            let name = format!("candidate-{n}-{}", candidates.len());
            candidates.push(cluster.candidate(&name));
        }
        cluster.create(&format!("sandbox-{n}")).await;
        sleep(Duration::from_millis(random.below(9000))).await;
        // Every other time it is the leader that has trouble.
        let leads = |c: &TestController| c.has_metric("sandbox_operator_leader 1");
        let leader = candidates.iter().position(leads);
        let any = usize::try_from(random.below(3)).unwrap();
        let place = leader.filter(|_| n % 2 == 0).unwrap_or(any);
        let candidate = candidates.swap_remove(place);
        match random.below(4) {
            0 => candidate.crash().await,
            1 => {
                // A loser of the lease at this very moment may say so.
                let _ = candidate.shut_down().await;
            }
            trouble => {
                candidate.set_link([Link::Silent, Link::Refused][usize::from(trouble == 3)]);
                sleep(Duration::from_millis(random.below(12_000))).await;
                candidate.set_link(Link::Up);
                candidates.push(candidate);
            }
        }
        candidates.retain(|c| !c.has_ended());
    }
    for n in 0..40 {
        let name = format!("sandbox-{n}");
        cluster.wait_for_phase(&name, Phase::Running).await;
    }
    let terms = cluster.assert_one_leader_at_a_time();
    assert!(terms >= 10, "only {terms} changes of leadership");
    assert_eq!(cluster.names::<Pod>().await.len(), 40);
}

#[tokio::test(start_paused = true)]
async fn installations_leave_each_others_sandboxes_alone_and_report_it() {
    let cluster = TestCluster::without_controller();
    let _controllers = ["one", "two"].map(|lease| {
        let identity = format!("candidate-{lease}");
        cluster.candidate_of(lease, &identity)
    });
    let names = ["a", "b", "c"];
    let mut owners = Vec::new();
    for name in names {
        let installation = cluster.running(name).await.status.installation.clone();
        owners.push(installation.unwrap().replace("default/", "candidate-"));
    }
    // Events come a moment later, and are kept for an hour.
    sleep(Duration::from_mins(1)).await;
    let events = cluster.api_of::<Event>().list(&ListParams::default()).await;
    let mut reports = events.unwrap().items;
    reports.retain(|event| event.reason.as_deref() == Some("OtherInstallation"));
    let about = reports
        .into_iter()
        .filter_map(|event| event.regarding?.name);
    assert_eq!(about.collect::<BTreeSet<_>>(), names.map(Into::into).into());
    cluster.faults().clear_writes();
    sleep(Duration::from_hours(1)).await;
    assert_eq!(cluster.writes_so_far(), []);
    for (name, owner) in names.iter().zip(owners) {
        cluster.faults().clear_writes();
        cluster.bring(name, DesiredState::Paused).await;
        sleep(Duration::from_mins(1)).await;
        let writes = cluster.writes_so_far();
        let all_by_owner = writes.iter().all(|(by, _)| *by == owner);
        assert!(all_by_owner, "{owner}: {writes:?}");
    }
}
