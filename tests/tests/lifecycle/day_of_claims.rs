//! A day of claims from one pool. While claims are in flight, Pods die, template and size change,
//! and leaders crash; after each of these everything is as wanted again within seconds.

use std::time::Duration;

use crds::names::SANDBOX_LABEL;
use crds::sandbox::Phase;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use tests::size::full_or;
use tests::test_cluster::{PoolInvariants, SeededRng, TestCluster, TestController};
use tokio::time::{Instant, sleep};

/// Mean time between two claims: 50 000 in a day.
const INTERVAL: Duration = Duration::from_millis(1_728);
/// Number of claims between two disturbances.
const CALM: usize = 25;
/// Sandboxes that live at a time.
const LIVING: usize = 40;
/// Claims in flight at a disturbance, fewer than the smallest pool has Pods.
const IN_FLIGHT: usize = 4;
/// Time of every call of the controller, and of the claims before a disturbance.
const LATENCY: Duration = Duration::from_millis(5);
const MAX_HEAD_START: Duration = Duration::from_millis(25);
/// Longest start while nothing happens.
const MAX_CALM_START: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
enum Disturbance {
    Deaths,
    Rollout,
    Resize,
    Failover,
}

impl Disturbance {
    const ALL: [Self; 4] = [Self::Deaths, Self::Rollout, Self::Resize, Self::Failover];

    /// Longest time until all sandboxes run, and until also the pool is as wanted.
    fn limits(self) -> [Duration; 2] {
        let millis = match self {
            Self::Deaths | Self::Rollout | Self::Resize => [1_000, 3_000],
            // The lease of the leader expires after 6 s.
            Self::Failover => [8_000, 10_000],
        };
        millis.map(Duration::from_millis)
    }
}

struct Day {
    cluster: TestCluster,
    invariants: PoolInvariants,
    rng: SeededRng,
    leader: TestController,
    standby: TestController,
    leaders: u32,
    /// Image and size of the pool.
    image: u32,
    replicas: u32,
    living: Vec<String>,
    /// Number of sandboxes so far.
    created: usize,
}

impl Day {
    async fn begin() -> Self {
        let cluster = TestCluster::without_controller();
        let invariants = cluster.watch_invariants();
        cluster.faults().set_latency(LATENCY);
        let leader = cluster.candidate("candidate-1");
        leader.wait_leading().await;
        let day = Self {
            standby: cluster.candidate("candidate-2"),
            leader,
            cluster,
            invariants,
            rng: SeededRng::new(7),
            leaders: 2,
            image: 0,
            replicas: 10,
            living: Vec::new(),
            created: 0,
        };
        day.put_pool().await;
        day.settled(Duration::from_secs(5)).await;
        day
    }

    fn image(&self) -> String {
        format!("image:{}", self.image)
    }

    async fn put_pool(&self) {
        let template = json!({"image": self.image(), "workspace": {"size": "1Gi"}});
        let spec = json!({"replicas": self.replicas, "template": template});
        self.cluster.put_pool(&spec).await;
    }

    /// Waits until all sandboxes run and all warm Pods are ready and up to date. Returns the time
    /// that it took.
    async fn settled(&self, limit: Duration) -> Duration {
        let begin = Instant::now();
        let image = Some(self.image());
        loop {
            let status = self.cluster.pool_status().await;
            let pods = self.cluster.api_of::<Pod>();
            let pods = pods.list(&ListParams::default()).await.unwrap().items;
            let is_current = |pod: &Pod| {
                let containers = &pod.spec.as_ref().unwrap().containers;
                pod.labels().contains_key(SANDBOX_LABEL) || containers[0].image == image
            };
            let starting = self
                .cluster
                .index
                .list(|e| e.status.phase != Phase::Running);
            let numbers = (status.ready, status.starting, status.outdated);
            if numbers == (self.replicas, 0, 0)
                && pods.iter().all(is_current)
                && pods.len() == self.living.len() + self.replicas as usize
                && starting.is_empty()
            {
                return begin.elapsed();
            }
            let wanted = self.replicas;
            assert!(
                begin.elapsed() < limit,
                "{wanted} wanted: {status:?}, {starting:?}"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn create(&mut self) -> String {
        self.created += 1;
        let name = format!("s{}", self.created);
        let fields = json!({"pool": "p", "image": null, "workspace": null,
            "env": [{"name": "SESSION", "value": name}]});
        self.cluster.create_with(&name, &fields).await;
        self.living.push(name.clone());
        name
    }

    async fn claim(&mut self) {
        let begin = Instant::now();
        let name = self.create().await;
        let sandbox = self.cluster.wait_for_phase(&name, Phase::Running).await;
        assert!(sandbox.status.warm, "{name} started cold");
        let took = begin.elapsed();
        assert!(took <= MAX_CALM_START, "{name} after {took:?}");
    }

    async fn delete_one(&mut self) {
        let at = self.rng.below(self.living.len() as u64);
        let name = self.living.swap_remove(usize::try_from(at).unwrap());
        let sandboxes = self.cluster.sandboxes();
        sandboxes
            .delete(&name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Returns the times until all sandboxes ran, and until everything was as wanted.
    async fn disturb(&mut self, disturbance: Disturbance) -> [Duration; 2] {
        for _ in 0..IN_FLIGHT {
            self.create().await;
        }
        let head_start = self.rng.time(MAX_HEAD_START);
        sleep(head_start).await;
        let begin = Instant::now();
        match disturbance {
            Disturbance::Deaths => self.kill_pods().await,
            Disturbance::Rollout => {
                self.image += 1;
                self.put_pool().await;
            }
            Disturbance::Resize => {
                self.replicas = 5 + u32::try_from(self.rng.below(20)).unwrap();
                self.put_pool().await;
            }
            Disturbance::Failover => self.fail_over().await,
        }
        let [started, settled] = disturbance.limits();
        let runs = |e: &operator::index::Entry| e.status.phase == Phase::Running;
        let took = self.cluster.wait_for_all(started, runs).await;
        self.settled(settled.saturating_sub(took)).await;
        [took, begin.elapsed()]
    }

    /// Half of the warm Pods, those of half of the claims in flight, and one that has run for long.
    async fn kill_pods(&self) {
        let in_flight = &self.living[self.living.len() - IN_FLIGHT / 2..];
        let pods = self.cluster.api_of::<Pod>();
        let pods = pods.list(&ListParams::default()).await.unwrap().items;
        let of = |pod: &Pod| pod.labels().get(SANDBOX_LABEL).cloned();
        let warm = pods.iter().filter(|pod| of(pod).is_none());
        let claimed = pods.iter().filter(|pod| {
            of(pod).is_some_and(|of| in_flight.contains(&of) || of == self.living[0])
        });
        for pod in claimed.chain(warm.take(1 + self.replicas as usize / 2)) {
            self.cluster.node.remove(&pod.name_any()).await;
        }
    }

    async fn fail_over(&mut self) {
        self.leaders += 1;
        let next = self
            .cluster
            .candidate(&format!("candidate-{}", self.leaders));
        let standby = std::mem::replace(&mut self.standby, next);
        std::mem::replace(&mut self.leader, standby).crash().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pool_serves_every_claim_of_a_day() {
    let mut day = Day::begin().await;
    let mut longest = [[Duration::ZERO; 2]; 4];
    for round in 0..full_or(50_000, 200) / CALM {
        for _ in 0..CALM {
            let pause = day.rng.time(2 * INTERVAL);
            sleep(pause).await;
            day.claim().await;
            while day.living.len() > LIVING {
                day.delete_one().await;
            }
        }
        let kind = round % 4;
        let took = day.disturb(Disturbance::ALL[kind]).await;
        longest[kind] = std::array::from_fn(|at| took[at].max(longest[kind][at]));
    }
    println!("{:?}: {longest:?}", Disturbance::ALL);
    sleep(Duration::from_mins(1)).await;
    day.invariants.assert_held();
    let cluster = &day.cluster;
    let replicas = day.replicas as usize;
    cluster.assert_nothing_leaked(&day.living, replicas).await;
    for name in std::mem::take(&mut day.living) {
        let (sandboxes, params) = (cluster.sandboxes(), DeleteParams::default());
        sandboxes.delete(&name, &params).await.unwrap();
    }
    day.replicas = 0;
    day.put_pool().await;
    day.settled(Duration::from_secs(5)).await;
    assert_eq!(day.cluster.names::<PersistentVolumeClaim>().await, [""; 0]);
}
