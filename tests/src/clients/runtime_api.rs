//! Calls of the runtime API. What a client takes from the answers, and what it raises, is its own.

use std::time::Duration;

use serde_json::{Value, json};

use super::{ClientException, HttpClient, Reply};

/// The API as one client calls it.
#[derive(Debug, Clone)]
pub struct RuntimeApi {
    pub url: String,
    pub wire: HttpClient,
    /// Time after which the client gives a call up.
    limit: Duration,
}

impl RuntimeApi {
    pub fn new(url: &str, api_key: &str, limit: Duration) -> Self {
        Self {
            url: url.into(),
            wire: HttpClient::new(api_key),
            limit,
        }
    }

    /// The same API with another time limit.
    #[must_use]
    pub fn within(&self, limit: Duration) -> Self {
        Self {
            limit,
            ..self.clone()
        }
    }

    pub async fn get(&self, path: &str) -> Result<Reply, ClientException> {
        let url = format!("{}/{path}", self.url);
        self.wire.try_get(&url, self.limit).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Reply, ClientException> {
        let url = format!("{}/{path}", self.url);
        self.wire.try_post(&url, body, self.limit).await
    }

    pub async fn session(&self, id: &str) -> Result<Reply, ClientException> {
        self.get(&format!("sessions/{id}")).await
    }

    /// `pause`, `resume` or `stop`.
    pub async fn change(&self, verb: &str, runtime_id: &Value) -> Result<Reply, ClientException> {
        self.post(verb, &json!({"runtime_id": runtime_id})).await
    }
}
