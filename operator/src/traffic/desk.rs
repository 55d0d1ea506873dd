//! Where a gateway answers controllers: `GET /traffic/{namespace}/{name}` on its administration port.
//! Only a controller of the same installation is answered, because a sandbox could reach that port
//! where no network policy is enforced.

use std::fmt;
use std::time::Duration;

use crds::contract::token::{TokenError, Verifier};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Traffic;
use crate::clock::{Clock, later};
use crate::index::Key;
use crate::keys::Keys;

/// How long a question may be on its way, with clocks that differ a little.
const LIFE: Duration = Duration::from_mins(1);
/// What the path begins with.
const ROOT: &str = "/traffic/";
/// What a question is signed as, so that no other statement passes for one.
const PURPOSE: &str = "traffic";

/// A signed question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    purpose: String,
    sandbox: String,
    /// Unix time in seconds after which it is void.
    expires: i64,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    idle_seconds: f64,
    seen: bool,
}

/// Answers for one gateway.
pub struct Desk {
    verifier: Verifier,
    clock: Clock,
    seen: Box<dyn Fn(&Key) -> Traffic + Send + Sync>,
}

/// The path of the question about a sandbox.
pub(super) fn path(sandbox: &Key) -> String {
    format!("{ROOT}{sandbox}")
}

/// The token that goes with the question.
pub(super) fn question(keys: &Keys, sandbox: &Key, now: Timestamp) -> Result<String, TokenError> {
    keys.signer().sign(&Question {
        purpose: PURPOSE.into(),
        sandbox: sandbox.to_string(),
        expires: later(now, LIFE).as_second(),
    })
}

impl Report {
    /// `None` if it makes no sense.
    pub(super) fn read(&self) -> Option<Traffic> {
        let idle = Duration::try_from_secs_f64(self.idle_seconds).ok()?;
        Some(Traffic {
            idle,
            seen: self.seen,
        })
    }
}

impl Desk {
    /// `seen` says what the gateway has seen of a sandbox.
    ///
    /// # Errors
    /// [`TokenError::Key`] if the installation's public key is unusable, which it never is.
    pub fn new(
        keys: &Keys,
        clock: Clock,
        seen: impl Fn(&Key) -> Traffic + Send + Sync + 'static,
    ) -> Result<Self, TokenError> {
        Ok(Self {
            verifier: Verifier::new(&keys.signer().public_key())?,
            clock,
            seen: Box::new(seen),
        })
    }

    /// The JSON that answers a request for `path`; a refusal otherwise. `None` if the path asks
    /// for something else.
    pub(crate) fn answer(
        &self,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<Result<String, StatusCode>> {
        let (namespace, name) = path.strip_prefix(ROOT)?.split_once('/')?;
        let sandbox = Key {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        if !self.is_entitled(&sandbox, headers) {
            return Some(Err(StatusCode::UNAUTHORIZED));
        }
        let Traffic { idle, seen } = (self.seen)(&sandbox);
        let report = Report {
            idle_seconds: idle.as_secs_f64(),
            seen,
        };
        let json = serde_json::to_string(&report);
        Some(json.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR))
    }

    fn is_entitled(&self, sandbox: &Key, headers: &HeaderMap) -> bool {
        let text = headers.get(AUTHORIZATION).map(HeaderValue::to_str);
        let token = text.and_then(|text| text.ok()?.strip_prefix("Bearer "));
        let question = token.and_then(|token| self.verifier.open::<Question>(token).ok());
        question.is_some_and(|question| {
            question.purpose == PURPOSE
                && question.sandbox == sandbox.to_string()
                && question.expires >= self.clock.now().as_second()
        })
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            namespace: "ns".into(),
            name: name.into(),
        }
    }

    fn bearer(token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_fresh_question_of_the_own_controller_is_answered() {
        let keys = Keys::derive(&[1; 32]).unwrap();
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let desk = Desk::new(&keys, clock, |_| Traffic {
            idle: Duration::from_millis(1500),
            seen: true,
        })
        .unwrap();
        let ask = |token: &str| desk.answer("/traffic/ns/a", &bearer(token)).unwrap();
        let good = question(&keys, &key("a"), clock.now()).unwrap();
        assert_eq!(ask(&good).unwrap(), r#"{"idle_seconds":1.5,"seen":true}"#);

        let denied = Err(StatusCode::UNAUTHORIZED);
        let stranger = Keys::derive(&[2; 32]).unwrap();
        assert_eq!(
            ask(&question(&stranger, &key("a"), clock.now()).unwrap()),
            denied
        );
        assert_eq!(
            ask(&question(&keys, &key("b"), clock.now()).unwrap()),
            denied
        );
        assert_eq!(ask("nonsense"), denied);
        assert_eq!(
            desk.answer("/traffic/ns/a", &HeaderMap::new()),
            Some(denied.clone())
        );
        let other = serde_json::json!({"purpose": "other", "sandbox": "ns/a", "expires": i64::MAX});
        assert_eq!(ask(&keys.signer().sign(&other).unwrap()), denied);
        tokio::time::advance(LIFE * 2).await;
        assert_eq!(ask(&good), denied);

        assert_eq!(desk.answer("/metrics", &bearer(&good)), None);
        assert_eq!(desk.answer("/traffic/ns", &bearer(&good)), None);
    }

    #[test]
    fn an_absurd_report_is_none() {
        for idle_seconds in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            let report = Report {
                idle_seconds,
                seen: true,
            };
            assert_eq!(report.read(), None, "{idle_seconds}");
        }
    }
}
