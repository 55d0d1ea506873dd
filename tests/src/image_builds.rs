//! Image builds of any Dockerfile through the runtime API.

use std::time::Duration;

use http::Method;
use serde_json::Value;
use testing::image_build::{FORM_TYPE, context, form};

use crate::clients::HttpClient;

/// Longer than a request is held.
const HELD: Duration = Duration::from_mins(1);
/// Held requests until a build must have ended.
const MAX_POLLS: u32 = 4;

/// A tenant of a gateway.
#[derive(Debug, Clone, Copy)]
pub struct Builder<'a> {
    /// URL of the runtime API.
    pub api: &'a str,
    pub key: &'a str,
}

impl Builder<'_> {
    /// `POST /build` with a few files of code; the id.
    pub async fn submit(&self, dockerfile: &str, target: &str) -> String {
        let headers = [("X-API-Key", self.key), ("Content-Type", FORM_TYPE)];
        let wire = HttpClient::with_headers(&headers);
        let form = form(&context(dockerfile, 1), target, &[]);
        let url = format!("{}/build", self.api);
        let reply = wire.send(Method::POST, &url, form.into(), HELD).await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.status, 202, "{reply:?}");
        let accepted = reply.json().expect("JSON");
        accepted["build_id"].as_str().expect("an id").to_owned()
    }

    /// Last answer to `/build_status`.
    pub async fn end(&self, id: &str) -> Value {
        let path = format!("/build_status?build_id={id}");
        let mut progress = Value::Null;
        for _ in 0..MAX_POLLS {
            progress = self.get(&path).await.json().expect("JSON");
            let is_open = progress["status"] == "QUEUED" || progress["status"] == "WORKING";
            if !is_open {
                break;
            }
        }
        progress
    }

    /// The whole stream of a log.
    pub async fn log(&self, id: &str) -> String {
        let reply = self.get(&format!("/build_logs?build_id={id}")).await;
        String::from_utf8_lossy(&reply.body).into_owned()
    }

    async fn get(&self, path: &str) -> crate::clients::Reply {
        let url = format!("{}{path}", self.api);
        let reply = HttpClient::new(self.key).try_get(&url, 2 * HELD).await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        reply
    }
}
