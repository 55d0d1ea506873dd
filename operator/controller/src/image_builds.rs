//! Image builds. The gateway makes most of them by itself; the leader runs those of a Dockerfile,
//! each in a Pod of its own, and deletes builds that are not used any more.

mod failure;
mod log;
mod pod;
mod progress;
pub(crate) mod queue;
mod run;
mod status;
mod steps;
mod sweep;
#[cfg(test)]
mod tests;
mod unused;

use std::sync::Arc;
use std::time::Duration;

use shared::image_builds::ImageBuilds;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::context::Context;

/// Time between two looks for builds that expire in the queue, and for what ended ones have left.
const INTERVAL: Duration = Duration::from_secs(30);

/// Runs and deletes image builds. Never ends.
pub(crate) async fn run(context: &Arc<Context>) {
    tokio::join!(unused::delete_unused(context), run_full(context));
}

/// Runs full builds, as many at once as the limits allow.
async fn run_full(context: &Arc<Context>) {
    if context.config.image_builds != ImageBuilds::Full {
        return std::future::pending().await;
    }
    context.builds.wait_synced().await;
    let (queue, limits) = (&context.builds, &context.config.builder.limits);
    let mut changes = queue.changes();
    let mut running = JoinSet::new();
    let mut clean_up = interval(INTERVAL);
    clean_up.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        for build in queue.expired(context.clock.now()) {
            status::expire(context, &build).await;
        }
        while let Some(build) = queue.take(limits) {
            running.spawn(run::run(context.clone(), build));
        }
        let (waiting, running_now) = queue.counts();
        context.metrics.record_build_queue(waiting, running_now);
        tokio::select! {
            // The sender lives in the queue, so this cannot fail.
            _ = changes.changed() => {}
            Some(_) = running.join_next() => {}
            _ = clean_up.tick() => sweep::delete_leftovers(context).await,
        }
    }
}
