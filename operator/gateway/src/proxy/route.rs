//! Routes a request to a sandbox and one of its ports. All URL forms work, whichever one the API
//! returns.

use std::net::{IpAddr, Ipv4Addr};

use axum::body::Body;
use crds::names::{RUNTIME_ID_LEN, is_runtime_id};
use http::header::HOST;
use http::uri::Authority;
use http::{Method, Request, Version};

use super::{Proxy, ProxyError};
use shared::urls::{RUNTIME, UrlForm, VSCODE};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Api,
    Sandbox(Route),
}

/// A port of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) id: String,
    pub(crate) port: String,
    /// Part before the path that the sandbox sees, if the request was routed by path.
    pub(crate) prefix: Option<Prefix>,
}

/// The part of a path that names a port of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// `/{id}/{port}`, or the part of it that exists.
    pub(super) text: String,
    /// Number of bytes that are removed from the path.
    pub(super) len: usize,
    /// True if the server knows the prefix and sees it.
    pub(super) kept: bool,
}

impl Proxy {
    /// The host takes precedence: on a sandbox's own host, every path belongs to the sandbox.
    pub(crate) fn target(
        &self,
        request: &Request<Body>,
        local: Option<IpAddr>,
    ) -> Result<Target, ProxyError> {
        // CONNECT would open a tunnel to any address; TRACE returns headers that the gateway adds.
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(ProxyError::WrongMethod);
        }
        let host = host(request)?;
        let sandbox = match host.as_deref().map(str::parse::<Ipv4Addr>) {
            None => None,
            Some(Ok(address)) => self.by_address(address, local)?,
            Some(Err(_)) => by_name(host.as_deref().unwrap_or_default(), &self.base_host),
        };
        let mut route = sandbox.or_else(|| by_path(request.uri().path()));
        // The server was started with its prefix (`docs/specs/runtime-api.md`, section 4.3).
        let expects_prefix = |route: &&mut Route| route.port == VSCODE;
        if self.config().keep_vscode_prefix
            && let Some(route) = route.as_mut().filter(expects_prefix)
            && let Some(prefix) = &mut route.prefix
        {
            (prefix.len, prefix.kept) = (0, true);
        }
        Ok(route.map_or(Target::Api, Target::Sandbox))
    }

    /// Route of a loopback address; `None` outside of the range of sandboxes. An address is only 23
    /// bits of an id, so it counts only in the loopback form and on a connection to that address.
    fn by_address(
        &self,
        address: Ipv4Addr,
        local: Option<IpAddr>,
    ) -> Result<Option<Route>, ProxyError> {
        let [first, second, ..] = address.octets();
        if self.config().urls.form != UrlForm::Loopback || first != 127 || second < 128 {
            return Ok(None);
        }
        if local.map(|local| local.to_canonical()) != Some(IpAddr::V4(address)) {
            return Err(ProxyError::UnknownSandbox);
        }
        let entry = self.sandboxes.index.by_loopback_address(address);
        let entry = entry.ok_or(ProxyError::UnknownSandbox)?;
        Ok(Some(Route::new(&*entry.runtime_id, RUNTIME)))
    }
}

impl Route {
    fn new(id: impl Into<String>, port: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            port: port.into(),
            prefix: None,
        }
    }
}

/// The host part of the base, in lower case.
pub(super) fn base_host(base: &str) -> String {
    let host = base.parse::<Authority>().map(|a| a.host().to_owned());
    host.unwrap_or_else(|_| base.to_owned())
        .to_ascii_lowercase()
}

/// `{id}.{base}`, `{port}-{id}.{base}`, or the same with a hyphen before the base.
pub(super) fn by_name(host: &str, base: &str) -> Option<Route> {
    let label = host.strip_suffix(base)?;
    let label = label.strip_suffix(['.', '-'])?;
    let id = label.get(label.len().checked_sub(RUNTIME_ID_LEN)?..)?;
    if !is_runtime_id(id) {
        return None;
    }
    match label.strip_suffix(id)? {
        "" => Some(Route::new(id, RUNTIME)),
        port => {
            let port = port.strip_suffix('-')?;
            is_port_name(port).then(|| Route::new(id, port))
        }
    }
}

/// `/{id}/{port}` and everything below.
pub(super) fn by_path(path: &str) -> Option<Route> {
    // A base URL that ends in a slash yields two.
    let start = path.len() - path.trim_start_matches('/').len();
    let mut parts = path[start..].splitn(3, '/');
    let (id, port) = (parts.next()?, parts.next().unwrap_or_default());
    let end = path.len().min(start + id.len() + 1 + port.len());
    is_runtime_id(id).then(|| Route {
        id: id.to_owned(),
        port: port.to_owned(),
        prefix: Some(Prefix {
            text: format!("/{}", &path[start..end]),
            len: end,
            kept: false,
        }),
    })
}

pub(super) fn is_port_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.bytes().all(inner)
}

/// Host of a request, in lower case and without port.
pub(super) fn host(request: &Request<Body>) -> Result<Option<String>, ProxyError> {
    let mut lines = request.headers().get_all(HOST).iter();
    let line = lines.next();
    if lines.next().is_some() {
        return Err(ProxyError::BadRequest("more than one Host"));
    }
    let named = line.map(|line| authority(line.as_bytes())).transpose()?;
    let target = request.uri().authority();
    if !target.is_none_or(is_plain) {
        return Err(ProxyError::BadRequest("the target is malformed"));
    }
    match (named, target) {
        (Some(named), Some(target)) if !same(&named, target) => Err(ProxyError::BadRequest(
            "the target of the request is another host",
        )),
        (None, None) if request.version() == Version::HTTP_11 => {
            Err(ProxyError::BadRequest("Host is missing"))
        }
        (named, target) => Ok(named.as_ref().or(target).map(plain_host)),
    }
}

fn authority(text: &[u8]) -> Result<Authority, ProxyError> {
    Authority::try_from(text)
        .ok()
        .filter(is_plain)
        .ok_or(ProxyError::BadRequest("Host is malformed"))
}

/// True if an authority is a host with at most a port, without user info.
fn is_plain(authority: &Authority) -> bool {
    let rest = authority.as_str().strip_prefix(authority.host());
    rest.is_some_and(|rest| matches!(rest, "" | ":") || authority.port_u16().is_some())
}

fn same(a: &Authority, b: &Authority) -> bool {
    a.as_str().eq_ignore_ascii_case(b.as_str())
}

fn plain_host(authority: &Authority) -> String {
    let host = authority.host();
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "kqzvbnwmxatyploe";

    #[test]
    fn routes_all_host_forms() {
        let base = base_host("RT.example.com:8443");
        let cases = [
            (format!("{ID}.rt.example.com"), Some("runtime")),
            (format!("{ID}-rt.example.com"), Some("runtime")),
            (format!("vscode-{ID}.rt.example.com"), Some("vscode")),
            (format!("work-1-{ID}-rt.example.com"), Some("work-1")),
            ("rt.example.com".into(), None),
            ("api.rt.example.com".into(), None),
            (format!("-{ID}.rt.example.com"), None),
            (format!("x{ID}.rt.example.com"), None),
            (format!("a.{ID}.rt.example.com"), None),
            (format!("{ID}.rt.example.org"), None),
            (format!("{ID}xrt.example.com"), None),
        ];
        for (host, port) in cases {
            let expected = port.map(|port| Route::new(ID, port));
            assert_eq!(by_name(&host, &base), expected, "{host}");
        }
    }

    #[test]
    fn routes_paths_and_keeps_their_tail() {
        let prefix = |path: &str| {
            by_path(path).map(|route| {
                let prefix = route.prefix.unwrap();
                let written = path[..prefix.len].to_owned();
                let one_slash = written.trim_start_matches('/');
                assert_eq!(prefix.text, format!("/{one_slash}"));
                (route.port, written)
            })
        };
        for (port, written, tail) in [
            ("runtime", format!("/{ID}/runtime"), "/a//b/../c"),
            ("work-1", format!("/{ID}/work-1"), ""),
            ("vscode", format!("//{ID}/vscode"), "/"),
            ("", format!("/{ID}"), ""),
            ("", format!("/{ID}/"), ""),
        ] {
            let found = prefix(&format!("{written}{tail}"));
            assert_eq!(found, Some((port.to_owned(), written)));
        }
        assert_eq!(prefix("/sessions/batch"), None);
        assert_eq!(prefix("/"), None);
    }

    #[test]
    fn rejects_ambiguous_hosts() {
        let request = |uri: &str, hosts: &[&str]| {
            let builder = Request::builder().uri(uri);
            let builder = hosts.iter().fold(builder, |b, h| b.header(HOST, *h));
            host(&builder.body(Body::empty()).unwrap())
        };
        assert_eq!(request("/", &["A.b.:80"]), Ok(Some("a.b".into())));
        assert_eq!(request("http://a/", &["a"]), Ok(Some("a".into())));
        assert!(request("http://b/", &["a"]).is_err());
        assert!(request("/", &["a", "a"]).is_err());
        assert!(request("/", &["u@a"]).is_err());
        assert!(request("http://u@a/", &[]).is_err());
        assert!(request("/", &["a:b"]).is_err());
        assert!(request("/", &["a:70000"]).is_err());
        assert_eq!(request("/", &["a:"]), Ok(Some("a".into())));
        assert_eq!(request("/", &["[::1]:80"]), Ok(Some("[::1]".into())));
        assert!(request("/", &["a b"]).is_err());
        assert!(request("/", &[]).is_err());
    }
}
