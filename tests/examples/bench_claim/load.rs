//! Loads: how many requests, and when.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use crate::adapter::Adapter;
use crate::times::Times;

/// Requests at equal intervals, whether or not earlier ones have been answered.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    /// Warm Pods at the begin.
    pub(crate) members: u32,
    /// Per second; `None`: all at once.
    rate: Option<u32>,
    count: u32,
    /// Age at which a sandbox is deleted.
    deleted_after: Option<Duration>,
}

pub(crate) const LOADS: [Load; 7] = [
    load("10/s for 30 s", 100, Some(10), 300),
    load("45/s for 60 s", 300, Some(45), 2700),
    load("45/s for 60 s of 2 800", 2800, Some(45), 2700),
    load("75/s for 10 s", 1050, Some(75), 750),
    load("300 at once", 400, None, 300),
    Load {
        deleted_after: Some(Duration::from_secs(5)),
        ..load("30/s for 60 s with deletion", 200, Some(30), 1800)
    },
    load("exhaustion: 200 at once of 100", 100, None, 200),
];

const fn load(name: &'static str, members: u32, rate: Option<u32>, count: u32) -> Load {
    Load {
        name,
        members,
        rate,
        count,
        deleted_after: None,
    }
}

/// Runs the load. Returns the times from each request until its sandbox was seen ready.
pub(crate) async fn run(adapter: &Adapter, load: &Load) -> Times {
    let begin = Instant::now();
    let interval = load
        .rate
        .map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate);
    let requests = (0..load.count).map(|number| async move {
        sleep_until(begin + interval * number).await;
        let name = format!("claim-{number}");
        let asked = Instant::now();
        let ready_at = adapter.start(&name).await;
        if let Some(age) = load.deleted_after {
            sleep_until(ready_at + age).await;
            adapter.delete(&name).await;
        }
        ready_at.duration_since(asked)
    });
    let requests: FuturesUnordered<_> = requests.collect();
    requests.collect::<Vec<_>>().await.into_iter().collect()
}
