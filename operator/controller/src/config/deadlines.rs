//! Deadlines of sandboxes, and the flags of their defaults.

use std::time::Duration;

use crds::sandbox::Lifecycle;

/// A time limit; `None` is never. As an alias, the field is a plain value for clap.
type Limit = Option<Duration>;

/// Deadlines of one sandbox, all decided, or the defaults of the installation. Durations have the
/// form of Kubernetes, for example `20m`; `0s` is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Default deadlines of sandboxes (0s: never)")]
pub struct Deadlines {
    /// Pause a sandbox after this time without activity.
    #[arg(long, env = "SANDBOX_IDLE_TIMEOUT", default_value = "0s", value_parser = limit)]
    pub idle_timeout: Limit,
    /// Pause a sandbox this time after its start, busy or not.
    #[arg(long, env = "SANDBOX_MAX_RUN_TIME", default_value = "0s", value_parser = limit)]
    pub max_run_time: Limit,
    /// Fail a start that is not ready within this time.
    #[arg(long, env = "SANDBOX_START_TIMEOUT", default_value = "15m", value_parser = limit)]
    pub start_timeout: Limit,
    /// Delete the workspace of a sandbox this time after its pause or failure.
    #[arg(long, env = "SANDBOX_DELETE_PAUSED_AFTER", default_value = "0s", value_parser = limit)]
    pub delete_paused_after: Limit,
    /// Delete the object of a stopped sandbox after this time.
    #[arg(long, env = "SANDBOX_DELETE_STOPPED_AFTER", default_value = "24h", value_parser = limit)]
    pub delete_stopped_after: Limit,
    /// Keep a Pod with the volume of a paused sandbox for this time, so that a resume takes no Pod
    /// start.
    #[arg(long, env = "SANDBOX_WARM_RESUME_FOR", default_value = "0s", value_parser = limit)]
    pub warm_resume_for: Limit,
}

impl Default for Deadlines {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_hours(1);
        Self {
            idle_timeout: None,
            max_run_time: None,
            start_timeout: Some(Duration::from_mins(15)),
            delete_paused_after: None,
            delete_stopped_after: Some(24 * HOUR),
            warm_resume_for: None,
        }
    }
}

impl Deadlines {
    /// These deadlines, overridden by `lifecycle`, where zero means never.
    #[must_use]
    pub fn overridden(self, lifecycle: Option<&Lifecycle>) -> Self {
        let Some(l) = lifecycle else {
            return self;
        };
        let pick = |own: Option<crds::duration::Duration>, default| match own.map(Duration::from) {
            Some(Duration::ZERO) => None,
            Some(own) => Some(own),
            None => default,
        };
        Self {
            idle_timeout: pick(l.idle_timeout, self.idle_timeout),
            max_run_time: pick(l.max_run_time, self.max_run_time),
            start_timeout: pick(l.start_timeout, self.start_timeout),
            delete_paused_after: pick(l.delete_paused_after, self.delete_paused_after),
            delete_stopped_after: pick(l.delete_stopped_after, self.delete_stopped_after),
            warm_resume_for: pick(l.warm_resume_for, self.warm_resume_for),
        }
    }
}

/// Parses a limit; zero means never.
fn limit(text: &str) -> Result<Limit, String> {
    if text.is_empty() {
        return Err("must not be empty; 0s is never".into());
    }
    let parsed = text.parse::<kube::core::Duration>();
    let duration = parsed.map_err(|e| format!("{e} (examples: 90s, 20m, 24h)"))?;
    if duration.is_negative() {
        return Err("must not be negative".into());
    }
    let duration = Duration::from(duration);
    Ok((!duration.is_zero()).then_some(duration))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        deadlines: Deadlines,
    }

    #[test]
    fn default_flags_equal_default_deadlines() {
        let command = Command::try_parse_from(["x"]).unwrap();
        assert_eq!(command.deadlines, Deadlines::default());
    }

    #[test]
    fn durations_have_the_form_of_kubernetes() {
        let read = |text| Command::try_parse_from(["x", "--idle-timeout", text]);
        let idle = |text| read(text).unwrap().deadlines.idle_timeout;
        assert_eq!(idle("1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(idle("0s"), None);
        for odd in ["20", "-5m", "soon", ""] {
            assert!(read(odd).is_err(), "{odd}");
        }
    }
}
