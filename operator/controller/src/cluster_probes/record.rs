//! The known answer of a probe, and its age.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::verdict::Verdict;

/// Age at which an answer is checked.
pub(super) const CHECK_AGE: SignedDuration = SignedDuration::from_hours(24);
/// The same for an answer that is not a clear yes.
const DOUBT_AGE: SignedDuration = SignedDuration::from_hours(1);

/// Answer of a probe, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeRecord {
    pub(super) works: bool,
    /// No run has had a verdict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unanswered: bool,
    /// Reason for which it does not work, or for which the last run has no verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    pub(super) probed_at: Timestamp,
    /// Hash of the Pod that was run.
    pub(super) pod: String,
}

impl ProbeRecord {
    /// Record after a run. A run without a verdict leaves the answer as it was.
    pub(super) fn new(
        before: Option<&Self>,
        verdict: Verdict,
        probed_at: Timestamp,
        pod: String,
    ) -> Self {
        let (works, unanswered, reason) = match verdict {
            Verdict::Works => (true, false, None),
            Verdict::Fails(reason) => (false, false, Some(reason)),
            Verdict::Unknown(reason) => (
                before.is_some_and(|it| it.works),
                before.is_none_or(|it| it.unanswered),
                Some(reason),
            ),
        };
        Self {
            works,
            unanswered,
            reason,
            probed_at,
            pod,
        }
    }

    /// Time of the next run.
    pub(super) fn due_at(&self, pod: &str) -> Timestamp {
        let age = match &self.reason {
            _ if self.pod != pod => SignedDuration::ZERO,
            None => CHECK_AGE,
            Some(_) => DOUBT_AGE,
        };
        // A record of the future would never be due.
        self.probed_at.saturating_add(age).unwrap_or(Timestamp::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_without_a_verdict_keeps_the_answer_and_is_repeated_sooner() {
        let start = Timestamp::UNIX_EPOCH;
        let unknown = || Verdict::Unknown("no room".into());
        let new = |before: Option<&ProbeRecord>, verdict| {
            ProbeRecord::new(before, verdict, start, "a".into())
        };
        let works = new(None, Verdict::Works);
        assert!(works.works && new(Some(&works), unknown()).works);
        assert!(!new(None, unknown()).works);
        let fails = new(Some(&works), Verdict::Fails("refused".into()));
        assert!(!fails.works && !new(Some(&fails), unknown()).works);
        assert!(!new(Some(&fails), unknown()).unanswered);
        let none = new(None, unknown());
        assert!(none.unanswered && new(Some(&none), unknown()).unanswered);
        for (record, pod, age) in [
            (&works, "a", CHECK_AGE),
            (&works, "b", SignedDuration::ZERO),
            (&fails, "a", DOUBT_AGE),
            (&new(Some(&works), unknown()), "a", DOUBT_AGE),
        ] {
            assert_eq!(record.due_at(pod), start + age);
        }
    }
}
