//! One request from the first byte to the answer: faults, body, parsing, the verb, the form of the answer, and the
//! record of writes.

pub(super) mod encode;

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::{
    BODY_LIMIT, Inner, discovery,
    error::ApiError,
    faults::{Failure, Outage, RequestInfo, Write},
    request::Request,
    service::Disconnected,
    verbs::{self, Answer},
};

pub(super) async fn respond(
    inner: Arc<Inner>,
    request: http::Request<Body>,
) -> Result<Response, Disconnected> {
    let (parts, body) = request.into_parts();
    let spared = inner.faults.spares(agent(&parts));
    if !spared {
        reach(&inner).await?;
    }
    if let Some(document) = discovery::answer(&inner, &parts) {
        return Ok(document);
    }
    let request = match read(body)
        .await
        .and_then(|body| Request::parse(&inner.registry, &parts, body))
    {
        Ok(request) => request,
        Err(error) => return Ok(encode::failure(&error)),
    };
    let info = RequestInfo::of(&request);
    let met = if spared {
        None
    } else {
        inner.faults.meet(&info)
    };
    match met {
        Some(Failure::Refuse) => Err(Disconnected),
        Some(Failure::LoseAnswer) => {
            execute(&inner, request, info).await;
            Err(Disconnected)
        }
        Some(Failure::Freeze) => {
            execute(&inner, request, info).await;
            inner.faults.freeze().await;
            Err(Disconnected)
        }
        Some(Failure::Code(code)) => {
            record(&inner, info, code, false);
            Ok(encode::failure(&ApiError::Injected(code)))
        }
        None => Ok(execute(&inner, request, info).await),
    }
}

fn agent(parts: &http::request::Parts) -> &str {
    let agent = parts.headers.get(http::header::USER_AGENT);
    agent.and_then(|a| a.to_str().ok()).unwrap_or_default()
}

/// The way to the server, which a fault may lengthen or block.
async fn reach(inner: &Inner) -> Result<(), Disconnected> {
    let latency = inner.faults.latency();
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let mut outage = inner.faults.outage();
    let state = outage
        .wait_for(|outage| *outage != Outage::Hang)
        .await
        .map_err(|_| Disconnected)?;
    if *state == Outage::Refuse {
        Err(Disconnected)
    } else {
        Ok(())
    }
}

async fn read(body: Body) -> Result<Bytes, ApiError> {
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::TooLarge(BODY_LIMIT)),
        Err(error) => Err(ApiError::BadRequest(format!(
            "the body could not be read: {error}"
        ))),
    }
}

async fn execute(inner: &Arc<Inner>, request: Request, info: RequestInfo) -> Response {
    let shape = encode::Shape::of(inner, &request);
    let answer = verbs::execute(inner, request).await;
    let changed = matches!(
        &answer,
        Ok(Answer::Object { changed: true, .. } | Answer::Status { changed: true, .. })
    );
    let response = match answer {
        Ok(answer) => encode::encode(&shape, answer),
        Err(error) => encode::failure(&error),
    };
    record(inner, info, response.status(), changed);
    response
}

fn record(inner: &Inner, request: RequestInfo, status: StatusCode, changed: bool) {
    if request.is_write() {
        inner.faults.record(Write {
            request,
            status,
            changed,
        });
    }
}
