//! A day of claims from one pool: warm Pods die, template and size change, and leaders crash.

use std::time::Duration;

use crds::SandboxPool;
use crds::pool::SandboxPoolStatus;
use crds::sandbox::Phase;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use tests::size::full_or;
use tests::test_cluster::{SeededRng, TestCluster, TestController};
use tokio::time::{Instant, sleep};

/// Mean time between two claims: 50 000 in a day.
const INTERVAL: Duration = Duration::from_millis(1_728);
/// Number of claims between two disturbances.
const CALM: usize = 50;
/// Sandboxes that live at a time.
const LIVING: usize = 40;
/// Longest time until a sandbox runs, a failover included, and until the pool is at its size.
const SERVED_WITHIN: Duration = Duration::from_secs(40);

struct Day {
    cluster: TestCluster,
    rng: SeededRng,
    leader: TestController,
    standby: TestController,
    leaders: u32,
    /// Image and size of the pool.
    image: u32,
    replicas: u32,
    living: Vec<String>,
}

impl Day {
    async fn begin() -> Self {
        let cluster = TestCluster::without_controller();
        let leader = cluster.candidate("candidate-1");
        leader.wait_leading().await;
        let day = Self {
            standby: cluster.candidate("candidate-2"),
            leader,
            cluster,
            rng: SeededRng::new(7),
            leaders: 2,
            image: 0,
            replicas: 10,
            living: Vec::new(),
        };
        day.put_pool().await;
        day.settle().await;
        day
    }

    async fn put_pool(&self) {
        let image = format!("image:{}", self.image);
        let template = json!({"image": image, "workspace": {"size": "1Gi"}});
        let spec = json!({"replicas": self.replicas, "template": template});
        self.cluster.put_pool(&spec).await;
    }

    async fn pool(&self) -> SandboxPoolStatus {
        let pools: Api<SandboxPool> = self.cluster.api_of();
        pools.get("p").await.unwrap().status.unwrap_or_default()
    }

    /// Waits until all warm Pods are ready and up to date.
    async fn settle(&self) {
        let limit = Instant::now() + SERVED_WITHIN;
        loop {
            let status = self.pool().await;
            if status.ready == self.replicas && status.outdated == 0 && status.starting == 0 {
                return;
            }
            assert!(
                Instant::now() < limit,
                "{} wanted: {status:?}",
                self.replicas
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Creates a sandbox and waits until it runs. Returns whether it claimed a Pod.
    async fn claim(&mut self, number: usize) -> bool {
        let name = format!("s{number}");
        let fields = json!({"pool": "p", "image": null, "workspace": null,
            "env": [{"name": "SESSION", "value": name}]});
        let begin = Instant::now();
        let sandbox = self.cluster.running_with(&name, &fields).await;
        assert!(
            begin.elapsed() < SERVED_WITHIN,
            "{name} after {:?}",
            begin.elapsed()
        );
        self.living.push(name);
        sandbox.status.warm
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

    async fn disturb(&mut self, number: usize) {
        match number / CALM % 4 {
            0 => {
                let pods = self.cluster.names::<Pod>().await;
                let warm = pods.iter().filter(|name| name.starts_with("p-"));
                for name in warm.take(1 + self.replicas as usize / 2) {
                    self.cluster.node.remove(name).await;
                }
            }
            1 => {
                self.image += 1;
                self.put_pool().await;
            }
            2 => {
                self.replicas = 5 + u32::try_from(self.rng.below(20)).unwrap();
                self.put_pool().await;
            }
            _ => self.fail_over().await,
        }
    }

    async fn fail_over(&mut self) {
        self.leaders += 1;
        let next = self
            .cluster
            .candidate(&format!("candidate-{}", self.leaders));
        let standby = std::mem::replace(&mut self.standby, next);
        std::mem::replace(&mut self.leader, standby).crash().await;
        self.leader.wait_leading().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pool_serves_every_claim_of_a_day() {
    let mut day = Day::begin().await;
    let claims = full_or(50_000, 600);
    let mut warm = 0;
    for number in 1..=claims {
        let pause = day.rng.time(2 * INTERVAL);
        sleep(pause).await;
        warm += usize::from(day.claim(number).await);
        if day.living.len() > LIVING {
            day.delete_one().await;
        }
        if number % CALM == 0 {
            day.disturb(number).await;
            day.settle().await;
        }
    }
    sleep(Duration::from_mins(1)).await;
    println!("{warm} of {claims} sandboxes claimed a warm Pod");
    assert!(warm * 100 >= claims * 99, "{warm} of {claims}");
    day.cluster.node.assert_single_pod();
    assert_eq!(day.cluster.node.claimed(), warm);
    assert!(day.cluster.node.most_warm_pods() <= 24 + 6);

    // Nothing is lost, and nothing is left over.
    let cluster = &day.cluster;
    let expected = day.living.len() + day.replicas as usize;
    assert_eq!(cluster.names::<Pod>().await.len(), expected);
    assert_eq!(
        cluster.names::<PersistentVolumeClaim>().await.len(),
        expected
    );
    for name in &day.living {
        assert_eq!(cluster.status(name).await.phase, Phase::Running);
        let (sandboxes, params) = (cluster.sandboxes(), DeleteParams::default());
        sandboxes.delete(name, &params).await.unwrap();
    }
    day.replicas = 0;
    day.put_pool().await;
    day.settle().await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(day.cluster.names::<Pod>().await, [""; 0]);
    assert_eq!(day.cluster.names::<PersistentVolumeClaim>().await, [""; 0]);
}
