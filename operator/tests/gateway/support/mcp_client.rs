//! Messages to `/mcp`, as a client of the protocol sends them.

use axum::body::Body;
use http::{Request, Response, request};
use serde_json::{Value, json};

use super::gateway_fixture::{GatewayFixture, KEY, read};

/// A `POST` with the headers that the transport demands, and the key of the first tenant.
pub(crate) fn post() -> request::Builder {
    post_as(KEY)
}

pub(crate) fn post_as(key: &str) -> request::Builder {
    bare_post().header("authorization", format!("Bearer {key}"))
}

/// The same without a key.
pub(crate) fn bare_post() -> request::Builder {
    Request::post("/mcp")
        .header("host", "api.example.com")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
}

pub(crate) fn message(method: &str, params: &Value) -> Body {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    Body::from(message.to_string())
}

/// Request for a call of a tool by the tenant of this key.
pub(crate) fn tool_request(key: &str, tool: &str, arguments: &Value) -> Request<Body> {
    let params = json!({"name": tool, "arguments": arguments});
    let body = message("tools/call", &params);
    post_as(key).body(body).unwrap()
}

/// Request that cancels a request of the session.
pub(crate) fn cancellation(key: &str, session: &str, id: u32) -> Request<Body> {
    let params = json!({"requestId": id, "reason": "enough"});
    let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    let request = post_as(key).header("mcp-session-id", session);
    request.body(Body::from(body.to_string())).unwrap()
}

impl GatewayFixture {
    /// Sends a message; status and JSON of the response.
    pub(crate) async fn mcp(&self, method: &str, params: &Value) -> (u16, Value) {
        let request = post().body(message(method, params)).unwrap();
        read(self.send(request).await).await
    }

    /// Calls a tool and returns whether it failed, and its text.
    pub(crate) async fn tool(&self, tool: &str, arguments: &Value) -> (bool, String) {
        self.tool_as(KEY, tool, arguments).await
    }

    pub(crate) async fn tool_as(&self, key: &str, tool: &str, given: &Value) -> (bool, String) {
        outcome(self.send(tool_request(key, tool, given)).await).await
    }
}

/// Returns whether a tool failed, and its text.
pub(crate) async fn outcome(response: Response<Body>) -> (bool, String) {
    let (status, answer) = read(response).await;
    assert_eq!(status, 200, "{answer}");
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("{answer}"));
    (result["isError"] == true, text.to_owned())
}
