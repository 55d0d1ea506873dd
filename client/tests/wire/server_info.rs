//! Answers of the server in a sandbox, which are not trusted.

use axum::Router;
use axum::routing::get;
use client::Error;

use crate::fixture::{path, sandbox, serve};

#[tokio::test]
async fn server_info_that_exceeds_its_limit_is_rejected() {
    let answer = async || format!(r#"{{"shell": "{}"}}"#, "x".repeat(64 << 10));
    let router = Router::new().route(&path("/server_info"), get(answer));
    let sandbox = sandbox(serve(router).await);
    let error = sandbox.server_info().await.unwrap_err();
    assert!(
        matches!(&error, Error::Protocol(_, text) if text == "the body exceeds 65536 bytes"),
        "{error}"
    );
}
