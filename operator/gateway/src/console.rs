//! The console below `/console/`: a page for people who run agents. Its files are in the program, and
//! it calls the same API as every other client (`docs/console.md`).
//!
//! Sandboxes in URL form `path` share its origin, so its headers keep their pages away from it.

use std::io::Write as _;
use std::sync::OnceLock;

use axum::body::Body;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    ETAG, IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use ring::digest::{SHA256, digest};

use crate::api::ApiError;

pub(crate) const PATH: &str = "/console";
const INDEX: &str = "index.html";
/// Names and contents of the files.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

/// Scripts, styles and connections of this origin alone: the sandboxes are reached below it as well,
/// whichever form their URLs have. Pictures in sandboxes are shown from `data:` URLs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'";
const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // A page of a sandbox that opens the console gets no handle of its window.
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// The files of the console.
#[derive(Debug)]
pub(crate) struct Console(Vec<ConsoleFile>);

#[derive(Debug)]
struct ConsoleFile {
    name: &'static str,
    content: &'static [u8],
    etag: String,
    /// Compressed content, made for the first client that takes it.
    gzip: OnceLock<Bytes>,
}

impl Console {
    pub(crate) fn new() -> Self {
        let file = |&(name, content): &(&'static str, &'static [u8])| ConsoleFile {
            name,
            content,
            etag: etag(content),
            gzip: OnceLock::new(),
        };
        Self(FILES.iter().map(file).collect())
    }

    /// Answers a request for the console; `None` if it is for something else. `path` is as the client
    /// wrote it.
    pub(crate) fn respond(&self, request: &Request<Body>) -> Option<Response<Body>> {
        let rest = request.uri().path().strip_prefix(PATH)?;
        if !matches!(rest.chars().next(), None | Some('/')) {
            return None;
        }
        let allow = [(ALLOW, "GET, HEAD, OPTIONS")];
        Some(match *request.method() {
            Method::GET | Method::HEAD => self.read(rest, request.headers()),
            Method::OPTIONS => (StatusCode::NO_CONTENT, allow).into_response(),
            _ => (allow, ApiError::WrongMethod).into_response(),
        })
    }

    fn read(&self, rest: &str, headers: &HeaderMap) -> Response<Body> {
        let Some(name) = rest.strip_prefix('/') else {
            return redirect();
        };
        let name = if name.is_empty() { INDEX } else { name };
        let file = self.0.iter().find(|file| file.name == name);
        file.map_or_else(
            || ApiError::UnknownPath.into_response(),
            |file| file.response(headers),
        )
    }
}

impl ConsoleFile {
    fn response(&self, request: &HeaderMap) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        for (name, value) in HEADERS {
            headers.insert(name, text(value));
        }
        headers.insert(CONTENT_TYPE, text(media_type(self.name)));
        headers.insert(CACHE_CONTROL, text(self.cache_control()));
        headers.insert(VARY, text("Accept-Encoding"));
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(ETAG, etag);
        }
        if is_known(request, &self.etag) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else if takes_gzip(request) {
            headers.insert(CONTENT_ENCODING, text("gzip"));
            *response.body_mut() = Body::from(self.gzip());
        } else {
            *response.body_mut() = Body::from(self.content);
        }
        response
    }

    /// Names with a hash of the content never get another content.
    fn cache_control(&self) -> &'static str {
        let stem = self.name.rsplit_once('.').map_or("", |(stem, _)| stem);
        let hash = stem.rsplit_once('-').map_or("", |(_, hash)| hash);
        match hash.len() {
            8 => IMMUTABLE,
            _ => "no-cache",
        }
    }

    fn gzip(&self) -> Bytes {
        let compress = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            // A vector takes every write.
            let _ = encoder.write_all(self.content);
            encoder.finish().unwrap_or_default().into()
        };
        self.gzip.get_or_init(compress).clone()
    }
}

/// The target is relative, because an Ingress may have removed a part of the path. It is not cached: a
/// page of a sandbox could fill the cache of its origin.
fn redirect() -> Response<Body> {
    let headers = [(LOCATION, "console/"), (CACHE_CONTROL, "no-store")];
    (StatusCode::PERMANENT_REDIRECT, headers).into_response()
}

/// A weak one: the compressed content has the same.
fn etag(content: &[u8]) -> String {
    let hash = digest(&SHA256, content);
    let hash = data_encoding::HEXLOWER.encode(&hash.as_ref()[..16]);
    format!("W/\"{hash}\"")
}

fn is_known(request: &HeaderMap, etag: &str) -> bool {
    let strong = etag.trim_start_matches("W/");
    list(request, &IF_NONE_MATCH)
        .any(|known| known == "*" || known.trim_start_matches("W/") == strong)
}

fn takes_gzip(request: &HeaderMap) -> bool {
    list(request, &ACCEPT_ENCODING).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map(str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight != Some(Ok(0.0))
    })
}

/// Elements of a list in a header.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',').map(str::trim))
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn text(value: &'static str) -> HeaderValue {
    HeaderValue::from_static(value)
}
