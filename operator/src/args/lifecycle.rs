//! Flags for how long sandboxes may last where neither they nor their pool say anything.

use std::time::Duration;

use crate::controller::Deadlines;

/// Deadlines of sandboxes. A duration is written as in Kubernetes, for example `20m`; `0s` is
/// never.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Deadlines of sandboxes that name none")]
pub struct LifecycleArgs {
    /// Pause a sandbox after this long without activity.
    #[arg(long, env = "SANDBOX_IDLE_TIMEOUT", default_value = "0s", value_parser = duration)]
    idle_timeout: Duration,
    /// Pause a sandbox this long after its start, busy or not.
    #[arg(long, env = "SANDBOX_MAX_RUN_TIME", default_value = "0s", value_parser = duration)]
    max_run_time: Duration,
    /// Give a sandbox up that is not ready after this long.
    #[arg(long, env = "SANDBOX_START_TIMEOUT", default_value = "15m", value_parser = duration)]
    start_timeout: Duration,
    /// Delete the workspace of a sandbox that was paused or has failed for this long.
    #[arg(long, env = "SANDBOX_DELETE_PAUSED_AFTER", default_value = "0s", value_parser = duration)]
    delete_paused_after: Duration,
    /// Keep the tombstone of a stopped sandbox for this long.
    #[arg(long, env = "SANDBOX_DELETE_STOPPED_AFTER", default_value = "24h", value_parser = duration)]
    delete_stopped_after: Duration,
}

impl From<LifecycleArgs> for Deadlines {
    fn from(args: LifecycleArgs) -> Self {
        let limit = |limit: Duration| (!limit.is_zero()).then_some(limit);
        Self {
            idle_timeout: limit(args.idle_timeout),
            max_run_time: limit(args.max_run_time),
            start_timeout: limit(args.start_timeout),
            delete_paused_after: limit(args.delete_paused_after),
            delete_stopped_after: limit(args.delete_stopped_after),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err("is missing: 0s is never".into());
    }
    let parsed = text.parse::<kube::core::Duration>();
    let duration = parsed.map_err(|e| format!("{e}: write it as 90s, 20m or 24h"))?;
    if duration.is_negative() {
        return Err("must not be negative".into());
    }
    Ok(duration.into())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        lifecycle: LifecycleArgs,
    }

    #[test]
    fn the_defaults_are_those_of_the_controller() {
        let command = Command::try_parse_from(["x"]).unwrap();
        assert_eq!(Deadlines::from(command.lifecycle), Deadlines::default());
    }

    #[test]
    fn durations_are_those_of_kubernetes() {
        let read = |text| Command::try_parse_from(["x", "--idle-timeout", text]);
        let idle = |text| Deadlines::from(read(text).unwrap().lifecycle).idle_timeout;
        assert_eq!(idle("1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(idle("0s"), None);
        for odd in ["20", "-5m", "soon", ""] {
            assert!(read(odd).is_err(), "{odd}");
        }
    }
}
