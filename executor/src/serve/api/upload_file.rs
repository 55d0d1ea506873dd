//! `POST /upload_file`: a file or an archive into a directory (`docs/specs/executor.md`, section
//! 2.5).

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::multipart::Field;
use axum::extract::{FromRequest as _, Multipart, Request, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::time::timeout;

use super::error::{Query, detail, flag, invalid, last, missing};
use crate::serve::executor::Executor;
use crate::serve::transfer::{Upload, UploadSender, upload_channel};

/// Time that a client may send nothing.
const STALL_TIMEOUT: Duration = Duration::from_mins(2);
/// Limit of the rest of a rejected upload that is read, so that the client can read the error.
const MAX_DISCARDED_BYTES: usize = 4 << 30;

#[derive(Debug, Serialize)]
struct Stored {
    filename: String,
    destination: String,
    recursive: bool,
}

pub(super) async fn post(
    State(executor): State<Arc<Executor>>,
    query: Query,
    request: Request,
) -> Response {
    let mut form = match form(request).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let answer = match &mut form {
        Some(form) => receive(&executor, &query, form).await,
        None => no_file(&query),
    };
    ignore_rest(form).await;
    answer
}

fn no_file(query: &Query) -> Response {
    let wrong = flag(query, "recursive").err();
    let errors: Vec<_> = wrong
        .into_iter()
        .chain([missing("'body', 'file'")])
        .collect();
    invalid(&errors)
}

/// Stores the part named `file`.
async fn receive(executor: &Executor, query: &Query, form: &mut Multipart) -> Response {
    loop {
        match timeout(STALL_TIMEOUT, form.next_field()).await {
            Ok(Ok(Some(field))) if field.name() == Some("file") && field.file_name().is_some() => {
                return accept(executor, query, field).await;
            }
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => return no_file(query),
            Ok(Err(_)) | Err(_) => {
                let text = "There was an error parsing the body";
                return detail(StatusCode::BAD_REQUEST, text);
            }
        }
    }
}

async fn accept(executor: &Executor, query: &Query, mut field: Field<'_>) -> Response {
    let recursive = match flag(query, "recursive") {
        Ok(recursive) => recursive,
        Err(error) => {
            ignore(&mut field).await;
            return invalid(&[error]);
        }
    };
    let destination = last(query, "destination").unwrap_or("/");
    let filename = field.file_name().unwrap_or_default();
    let upload = Upload::new(destination, filename, recursive);
    let stored = Stored {
        filename: upload.name.clone(),
        destination: destination.to_owned(),
        recursive,
    };
    let (sending, received) = upload_channel();
    // Concurrently: a thread stores while the body is received.
    let storing = executor.upload(upload, received);
    match tokio::join!(storing, forward_body(sending, &mut field)).0 {
        Ok(()) => Json(stored).into_response(),
        Err(error) => error.into_response(),
    }
}

/// Returns the form, or `None` if the body has another media type.
async fn form(request: Request) -> Result<Option<Multipart>, Response> {
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.to_ascii_lowercase().starts_with("multipart/form-data") {
        return Ok(None);
    }
    match Multipart::from_request(request, &()).await {
        Ok(form) => Ok(Some(form)),
        Err(_) => Err(detail(
            StatusCode::BAD_REQUEST,
            "Missing boundary in multipart.",
        )),
    }
}

async fn forward_body(sending: UploadSender, field: &mut Field<'_>) {
    while let Some(piece) = next(field).await.transpose() {
        let Ok(piece) = piece else {
            // Dropping the sender without `end` marks the upload as incomplete.
            return;
        };
        if !sending.data(piece).await {
            return ignore(field).await;
        }
    }
    sending.end().await;
}

/// The next piece; an error if the client has disconnected or stalled, or if its form is incomplete.
async fn next(field: &mut Field<'_>) -> anyhow::Result<Option<bytes::Bytes>> {
    Ok(timeout(STALL_TIMEOUT, field.chunk()).await??)
}

async fn ignore(field: &mut Field<'_>) {
    let mut ignored = 0;
    while let Ok(Some(piece)) = next(field).await {
        ignored += piece.len();
        if ignored > MAX_DISCARDED_BYTES {
            return;
        }
    }
}

async fn ignore_rest(form: Option<Multipart>) {
    let Some(mut form) = form else {
        return;
    };
    while let Ok(Ok(Some(mut field))) = timeout(STALL_TIMEOUT, form.next_field()).await {
        ignore(&mut field).await;
    }
}
