//! `GET /download_files`: a directory as an archive (`docs/specs/executor.md`, section 2.6).

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};

use super::error::{Query, invalid, last, missing};
use crate::serve::executor::Executor;
use crate::serve::transfer::TransferError;

pub(super) async fn get(State(executor): State<Arc<Executor>>, query: Query) -> Response {
    let Some(path) = last(&query, "path") else {
        return invalid(&[missing("'query', 'path'")]);
    };
    if !path.starts_with('/') {
        return TransferError::RelativePath.into_response();
    }
    match executor.download(PathBuf::from(path)).await {
        Ok(download) => {
            let headers = [
                (CONTENT_TYPE, "application/zip".to_owned()),
                (CONTENT_DISPOSITION, disposition(path)),
            ];
            (headers, download).into_response()
        }
        Err(error) => error.into_response(),
    }
}

/// Value of `Content-Disposition`. Names with other than unreserved characters are percent-encoded.
pub(super) fn disposition(path: &str) -> String {
    let name = format!("{}.zip", path.rsplit('/').next().unwrap_or_default());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte);
    if name.bytes().all(plain) {
        return format!("attachment; filename=\"{name}\"");
    }
    let mut quoted = String::from("attachment; filename*=utf-8''");
    for byte in name.bytes() {
        if plain(byte) {
            quoted.push(char::from(byte));
        } else {
            let _ = write!(quoted, "%{byte:02X}");
        }
    }
    quoted
}
