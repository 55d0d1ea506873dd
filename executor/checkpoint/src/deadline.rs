//! Point on the monotonic clock at which a dump or restore is given up.

use std::time::Duration;

use rustix::event::Timespec;
use rustix::time::{ClockId, clock_gettime};

/// Point in time, as the time since boot without suspensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(Duration);

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self(monotonic_now().saturating_add(limit))
    }

    /// Time that is left; `None` once the point has passed.
    pub(crate) fn remaining(self) -> Option<Duration> {
        self.0
            .checked_sub(monotonic_now())
            .filter(|rest| !rest.is_zero())
    }
}

pub(crate) fn monotonic_now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// A timeout for `poll`.
pub(crate) fn to_timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
