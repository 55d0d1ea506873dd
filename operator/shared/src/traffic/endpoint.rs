//! Endpoint of a gateway for controllers: `GET /traffic/{namespace}/{name}` on the admin port.
//! Queries are signed, because a sandbox could reach that port where no network policy is enforced.

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

/// Validity of a query, including clock differences.
const QUERY_TTL: Duration = Duration::from_mins(1);
const PATH_PREFIX: &str = "/traffic/";
/// Purpose in the signed query, so that no other signed statement is accepted.
const PURPOSE: &str = "traffic";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrafficQuery {
    purpose: String,
    sandbox: String,
    /// Unix time in seconds after which the query is invalid.
    expires: i64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TrafficReport {
    idle_seconds: f64,
    seen: bool,
}

#[derive(derive_more::Debug)]
#[debug("TrafficEndpoint(..)")]
pub struct TrafficEndpoint {
    /// One for each key that a controller may have.
    verifiers: Vec<Verifier>,
    clock: Clock,
    traffic_of: Box<dyn Fn(&Key) -> Traffic + Send + Sync>,
}

/// Path of the query for a sandbox.
pub(super) fn path(sandbox: &Key) -> String {
    format!("{PATH_PREFIX}{sandbox}")
}

pub(super) fn sign_query(keys: &Keys, sandbox: &Key, now: Timestamp) -> Result<String, TokenError> {
    let query = TrafficQuery {
        purpose: PURPOSE.into(),
        sandbox: sandbox.to_string(),
        expires: later(now, QUERY_TTL).as_second(),
    };
    // Gateways may not know the newest key yet.
    keys.of(Some(Timestamp::MIN)).signer().sign(&query)
}

impl TrafficReport {
    /// Traffic in the report; `None` if the duration is invalid.
    pub(super) fn read(&self) -> Option<Traffic> {
        Some(Traffic {
            idle: Duration::try_from_secs_f64(self.idle_seconds).ok()?,
            has_seen_request: self.seen,
        })
    }
}

impl TrafficEndpoint {
    /// Fails with [`TokenError::Key`] if the public key of the installation is invalid.
    pub fn new(
        keys: &Keys,
        clock: Clock,
        traffic_of: impl Fn(&Key) -> Traffic + Send + Sync + 'static,
    ) -> Result<Self, TokenError> {
        Ok(Self {
            verifiers: keys
                .sets()
                .map(|keys| Verifier::new(&keys.signer().public_key()))
                .collect::<Result<_, _>>()?,
            clock,
            traffic_of: Box::new(traffic_of),
        })
    }

    /// JSON report for a request of `path`, or an error status. `None` for any other path.
    pub fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Result<String, StatusCode>> {
        let (namespace, name) = path.strip_prefix(PATH_PREFIX)?.split_once('/')?;
        let sandbox = Key {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        if !self.is_authorized(&sandbox, headers) {
            return Some(Err(StatusCode::UNAUTHORIZED));
        }
        let traffic = (self.traffic_of)(&sandbox);
        let report = TrafficReport {
            idle_seconds: traffic.idle.as_secs_f64(),
            seen: traffic.has_seen_request,
        };
        let json = serde_json::to_string(&report);
        Some(json.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR))
    }

    fn is_authorized(&self, sandbox: &Key, headers: &HeaderMap) -> bool {
        let text = headers.get(AUTHORIZATION).map(HeaderValue::to_str);
        let token = text.and_then(|text| text.ok()?.strip_prefix("Bearer "));
        let open = |token| {
            let mut opened = self.verifiers.iter().map(|verifier| verifier.open(token));
            opened.find_map(Result::<TrafficQuery, _>::ok)
        };
        let query = token.and_then(open);
        query.is_some_and(|query| {
            query.purpose == PURPOSE
                && query.sandbox == sandbox.to_string()
                && query.expires >= self.clock.now().as_second()
        })
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
    async fn accepts_only_fresh_queries_of_its_own_installation() {
        let keys = Keys::derive(&[1; 32]).unwrap();
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let endpoint = TrafficEndpoint::new(&keys, clock, |_| Traffic {
            idle: Duration::from_millis(1500),
            has_seen_request: true,
        })
        .unwrap();
        let respond = |token: &str| endpoint.answer("/traffic/ns/a", &bearer(token)).unwrap();
        let good = sign_query(&keys, &key("a"), clock.now()).unwrap();
        let report = r#"{"idle_seconds":1.5,"seen":true}"#;
        assert_eq!(respond(&good).unwrap(), report);

        let denied = Err(StatusCode::UNAUTHORIZED);
        let foreign = Keys::derive(&[2; 32]).unwrap();
        let other = serde_json::json!({"purpose": "other", "sandbox": "ns/a", "expires": i64::MAX});
        for token in [
            sign_query(&foreign, &key("a"), clock.now()).unwrap(),
            sign_query(&keys, &key("b"), clock.now()).unwrap(),
            keys.of(None).signer().sign(&other).unwrap(),
            "nonsense".into(),
        ] {
            assert_eq!(respond(&token), denied, "{token}");
        }
        let anonymous = endpoint.answer("/traffic/ns/a", &HeaderMap::new());
        assert_eq!(anonymous, Some(denied.clone()));
        let rotated = Keys::derive(&[2; 32]).unwrap();
        let rotated = rotated.with_previous(&[1; 32], Timestamp::MAX).unwrap();
        let of_both = sign_query(&rotated, &key("a"), clock.now()).unwrap();
        assert!(
            respond(&of_both).is_ok(),
            "a gateway that knows the old key only"
        );
        let gateway = TrafficEndpoint::new(&rotated, clock, |_| Traffic {
            idle: Duration::ZERO,
            has_seen_request: false,
        });
        let gateway = gateway.unwrap();
        for controller in [&keys, &rotated, &foreign] {
            let query = sign_query(controller, &key("a"), clock.now()).unwrap();
            let answer = gateway.answer("/traffic/ns/a", &bearer(&query));
            assert!(answer.unwrap().is_ok());
        }
        tokio::time::advance(QUERY_TTL * 2).await;
        assert_eq!(respond(&good), denied);

        assert_eq!(endpoint.answer("/metrics", &bearer(&good)), None);
        assert_eq!(endpoint.answer("/traffic/ns", &bearer(&good)), None);
    }

    #[test]
    fn rejects_report_with_invalid_duration() {
        for idle_seconds in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            let report = TrafficReport {
                idle_seconds,
                seen: true,
            };
            assert_eq!(report.read(), None, "{idle_seconds}");
        }
    }
}
