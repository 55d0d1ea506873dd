//! Check of the gateway with the API key of the caller.

use std::time::Duration;

use super::finding::{Finding, failed, skipped};
use crate::failure::Failure;
use client::Client;

const ID: &str = "api-key";
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn not_set() -> Finding {
    Finding::new(ID, Err(skipped("SANDBOX_API_URL is not set")))
}

pub(super) async fn gateway(client: Result<Client, Failure>) -> Finding {
    let list = async { client?.list().await.map_err(Failure::from) };
    let outcome = match tokio::time::timeout(TIMEOUT, list).await {
        Ok(Ok(_)) => Ok("the gateway accepts the API key".into()),
        Ok(Err(error)) => Err(failed(
            error.to_string(),
            "check SANDBOX_API_URL and SANDBOX_API_KEY",
        )),
        Err(_) => Err(failed(
            "the gateway does not respond within 10 s",
            "check SANDBOX_API_URL",
        )),
    };
    Finding::new(ID, outcome)
}
