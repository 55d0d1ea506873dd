//! Measured times.

use std::fmt;
use std::time::Duration;

/// Times in ascending order.
#[derive(Debug)]
pub(crate) struct Times(Vec<Duration>);

impl FromIterator<Duration> for Times {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort();
        Self(times)
    }
}

impl Times {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0
            .get(rank)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most, nearly, all] = [50, 90, 99, 100].map(|percent| self.percentile(percent));
        write!(
            f,
            "p50 {half:.1}, p90 {most:.1}, p99 {nearly:.1}, max {all:.1} ms"
        )
    }
}
