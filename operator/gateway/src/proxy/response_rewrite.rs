//! Rewrites links and cookies of a server that was reached by path. The server may not know its
//! prefix, so links to its root are moved below it, once.
//!
//! All sandboxes share one origin there. The path of a cookie keeps it from other sandboxes, and so
//! does the removed domain on a host of its own.

use http::header::{CONTENT_LOCATION, HOST, LOCATION, SET_COOKIE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::route::Prefix;

/// With this header a page could log its user out of everything below the registrable domain, which
/// sandboxes and the application share in every URL form.
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// With these headers a page could control or observe the whole origin that it shares. Browsers
/// keep them after the page is closed.
const ORIGIN_WIDE_HEADERS: [HeaderName; 5] = [
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    http::header::ALT_SVC,
    http::header::STRICT_TRANSPORT_SECURITY,
];

/// Rewrites the response headers of one request.
#[derive(Debug)]
pub(super) struct PrefixRewriter {
    prefix: String,
    /// True if the server knows the prefix, so that its links contain it.
    prefix_kept: bool,
    /// Host as the client wrote it.
    host: Option<Authority>,
}

impl PrefixRewriter {
    /// Creates a rewriter for a request with these headers.
    pub(super) fn new(prefix: &Prefix, headers: &HeaderMap) -> Self {
        let host = headers.get(HOST).map(HeaderValue::as_bytes);
        Self {
            prefix: prefix.text.clone(),
            prefix_kept: prefix.kept,
            host: host.and_then(|host| Authority::try_from(host).ok()),
        }
    }

    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        if !self.prefix_kept {
            for name in [LOCATION, CONTENT_LOCATION] {
                self.apply_to_link(headers, name);
            }
        }
        headers.remove(CLEAR_SITE_DATA);
        for name in &ORIGIN_WIDE_HEADERS {
            headers.remove(name);
        }
        for_each_cookie(headers, |cookie| self.cookie(cookie));
    }

    fn apply_to_link(&self, headers: &mut HeaderMap, name: HeaderName) {
        let link = headers.get(&name).map(HeaderValue::as_bytes);
        let link = link.and_then(|link| std::str::from_utf8(link).ok());
        let moved = link.and_then(|link| self.link(link));
        if let Some(moved) = moved.and_then(|link| HeaderValue::try_from(link).ok()) {
            headers.insert(name, moved);
        }
    }

    /// Moves a link below the prefix; `None` if it leads elsewhere, is relative or has the prefix.
    fn link(&self, link: &str) -> Option<String> {
        if link.starts_with('/') && !link.starts_with("//") {
            return self.with_prefix(link);
        }
        let (scheme, rest) = link.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let host = self.host.as_ref()?;
        if !authority.eq_ignore_ascii_case(host.as_str()) {
            return None;
        }
        let slash = if rest.starts_with('/') { "" } else { "/" };
        let moved = self.with_prefix(&format!("{slash}{rest}"))?;
        Some(format!("{scheme}://{authority}{moved}"))
    }

    fn with_prefix(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&self.prefix);
        let has_prefix =
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
        (!has_prefix).then(|| format!("{}{path}", self.prefix))
    }

    /// Restricts a cookie to the prefix and this host. The last of several paths counts. Without a
    /// path, browsers would use the folder of the request, which may be above the prefix.
    /// Attributes may contain bytes that are not text (RFC 6265, section 5.2).
    fn cookie(&self, cookie: HeaderValue) -> HeaderValue {
        let (mut kept, mut path) = (Vec::new(), Vec::new());
        for (at, part) in cookie.as_bytes().split(|byte| *byte == b';').enumerate() {
            match attribute(part) {
                _ if at == 0 => kept.push(part),
                (name, _) if name.eq_ignore_ascii_case(b"domain") => {}
                (name, value) if name.eq_ignore_ascii_case(b"path") => value.clone_into(&mut path),
                _ => kept.push(part),
            }
        }
        let path = [b" Path=", self.cookie_path(&path).as_slice()].concat();
        kept.push(&path);
        HeaderValue::try_from(kept.join(&b';')).unwrap_or(cookie)
    }

    fn cookie_path(&self, path: &[u8]) -> Vec<u8> {
        let prefix = self.prefix.as_bytes();
        let rest = path.strip_prefix(prefix);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) {
            return path.to_owned();
        }
        let rooted = path.len() > 1 && path.starts_with(b"/");
        [prefix, if rooted { path } else { b"" }].concat()
    }
}

/// A cookie for the whole domain would be sent to other sandboxes and could replace theirs.
pub(super) fn strip_cookie_domains(headers: &mut HeaderMap) {
    headers.remove(CLEAR_SITE_DATA);
    for_each_cookie(headers, without_domain);
}

fn attribute(part: &[u8]) -> (&[u8], &[u8]) {
    let mut halves = part.splitn(2, |byte| *byte == b'=').map(<[u8]>::trim_ascii);
    let name = halves.next().unwrap_or_default();
    (name, halves.next().unwrap_or_default())
}

fn for_each_cookie(headers: &mut HeaderMap, change: impl Fn(HeaderValue) -> HeaderValue) {
    let cookies: Vec<_> = headers.get_all(SET_COOKIE).iter().cloned().collect();
    if cookies.is_empty() {
        return;
    }
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        headers.append(SET_COOKIE, change(cookie));
    }
}

fn without_domain(cookie: HeaderValue) -> HeaderValue {
    let is_domain = |part: &&[u8]| attribute(part).0.eq_ignore_ascii_case(b"domain");
    let mut parts = cookie.as_bytes().split(|byte| *byte == b';');
    let pair = parts.next().unwrap_or_default();
    let kept: Vec<_> = std::iter::once(pair)
        .chain(parts.filter(|part| !is_domain(part)))
        .collect();
    HeaderValue::try_from(kept.join(&b';')).unwrap_or(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_domain_from_cookies_of_a_sandbox_host() {
        let mut headers = HeaderMap::new();
        headers.insert("service-worker-allowed", HeaderValue::from_static("/"));
        headers.insert(CLEAR_SITE_DATA, HeaderValue::from_static("\"*\""));
        for cookie in [
            b"a=1; Path=/; HttpOnly".as_slice(),
            b"b=1;domain=.rt.example ; Secure",
            b"domain=1; DOMAIN = rt.example",
            b"c=\xed; Domain",
        ] {
            let cookie = HeaderValue::from_bytes(cookie).unwrap();
            headers.append(SET_COOKIE, cookie);
        }
        strip_cookie_domains(&mut headers);
        let cookies = headers.get_all(SET_COOKIE).iter();
        let cookies: Vec<_> = cookies.map(HeaderValue::as_bytes).collect();
        let expected = [
            b"a=1; Path=/; HttpOnly".as_slice(),
            b"b=1; Secure",
            b"domain=1",
            b"c=\xed",
        ];
        assert_eq!(cookies, expected);
        // A server may control its own host, but not the domain.
        assert!(headers.contains_key("service-worker-allowed"));
        assert!(!headers.contains_key(CLEAR_SITE_DATA));
    }

    #[test]
    fn origin_wide_headers_are_removed_under_path_prefix() {
        for kept in [false, true] {
            let mut headers = HeaderMap::new();
            for name in ORIGIN_WIDE_HEADERS.iter().chain([&CLEAR_SITE_DATA]) {
                headers.insert(name, HeaderValue::from_static("/"));
            }
            rewriter_of(kept).apply(&mut headers);
            assert!(headers.is_empty(), "{headers:?}");
        }
    }

    fn rewriter_of(kept: bool) -> PrefixRewriter {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("RT.example:8443"));
        let prefix = Prefix {
            text: "/id/work-1".into(),
            len: 0,
            kept,
        };
        PrefixRewriter::new(&prefix, &headers)
    }

    #[test]
    fn adds_prefix_to_root_links_once() {
        for row in [
            "/login?next=/a -> /id/work-1/login?next=/a",
            "/ -> /id/work-1/",
            "/id/work-10/ -> /id/work-1/id/work-10/",
            "https://rt.example:8443/a -> https://rt.example:8443/id/work-1/a",
            "http://rt.example:8443?a -> http://rt.example:8443/id/work-1/?a",
        ] {
            let (link, expected) = row.split_once(" -> ").unwrap();
            let rewritten = rewriter_of(false).link(link);
            assert_eq!(rewritten.as_deref(), Some(expected), "{link}");
        }
        for link in [
            "/id/work-1/login",
            "/id/work-1?a",
            "/id/work-1",
            "login",
            "?a",
            "//other/x",
            "https://other/x",
            "https://rt.example/x",
            "https://rt.example:8443/id/work-1/x",
            "mailto:a@b",
            "",
        ] {
            assert_eq!(rewriter_of(false).link(link), None, "{link}");
        }
    }

    #[test]
    fn restricts_cookies_to_prefix() {
        for row in [
            "a=1; Path=/; HttpOnly -> a=1; HttpOnly; Path=/id/work-1",
            "a=/; path = /x ;Secure -> a=/;Secure; Path=/id/work-1/x",
            "a=1; Path=/id/work-1/y -> a=1; Path=/id/work-1/y",
            "a=1; Domain=rt.example; Max-Age=3 -> a=1; Max-Age=3; Path=/id/work-1",
            "a=1 -> a=1; Path=/id/work-1",
            "a=1; Path=x -> a=1; Path=/id/work-1",
            "a=1; Path=/x; Path -> a=1; Path=/id/work-1",
            "domain=1; domain=rt.example -> domain=1; Path=/id/work-1",
            "path=/; path=/id/work-10 -> path=/; Path=/id/work-1/id/work-10",
        ] {
            let (cookie, expected) = row.split_once(" -> ").unwrap();
            let moved = rewriter_of(false).cookie(HeaderValue::from_static(cookie));
            assert_eq!(moved, expected, "{cookie}");
        }
    }

    #[test]
    fn strips_domain_from_cookie_that_is_not_text() {
        let cookie = HeaderValue::from_bytes(b"a=\xed; Domain=rt.ex\xedample; Path=/\xed").unwrap();
        let moved = rewriter_of(false).cookie(cookie);
        assert_eq!(moved.as_bytes(), b"a=\xed; Path=/id/work-1/\xed");
    }
}
