//! Links and cookies of a server that was reached by a path. It may not know of the prefix, so what
//! it says about its own root is put below it; what has the prefix already is left alone.
//!
//! All sandboxes share one origin there. A cookie that stays below its prefix is not sent to others.

use http::header::{CONTENT_LOCATION, HOST, LOCATION, SET_COOKIE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Where the answer of a server comes to light.
#[derive(Debug)]
pub(super) struct Base {
    prefix: String,
    /// As the client wrote it.
    host: Option<Authority>,
}

impl Base {
    /// `headers` are those of the request.
    pub(super) fn new(prefix: &str, headers: &HeaderMap) -> Self {
        let host = headers.get(HOST).map(HeaderValue::as_bytes);
        Self {
            prefix: prefix.to_owned(),
            host: host.and_then(|host| Authority::try_from(host).ok()),
        }
    }

    /// Corrects the headers of an answer.
    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        for name in [LOCATION, CONTENT_LOCATION] {
            self.apply_to_link(headers, name);
        }
        let cookies: Vec<_> = headers.get_all(SET_COOKIE).iter().cloned().collect();
        if cookies.is_empty() {
            return;
        }
        headers.remove(SET_COOKIE);
        for cookie in cookies {
            headers.append(SET_COOKIE, self.cookie(cookie));
        }
    }

    fn apply_to_link(&self, headers: &mut HeaderMap, name: HeaderName) {
        let link = headers.get(&name).map(HeaderValue::as_bytes);
        let link = link.and_then(|link| std::str::from_utf8(link).ok());
        let moved = link.and_then(|link| self.link(link));
        if let Some(moved) = moved.and_then(|link| HeaderValue::try_from(link).ok()) {
            headers.insert(name, moved);
        }
    }

    /// The link below the prefix; `None` if it leads elsewhere, is relative or has the prefix.
    fn link(&self, link: &str) -> Option<String> {
        if link.starts_with('/') && !link.starts_with("//") {
            return self.below(link);
        }
        let (scheme, rest) = link.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let host = self.host.as_ref()?;
        if !authority.eq_ignore_ascii_case(host.as_str()) {
            return None;
        }
        let slash = if rest.starts_with('/') { "" } else { "/" };
        let moved = self.below(&format!("{slash}{rest}"))?;
        Some(format!("{scheme}://{authority}{moved}"))
    }

    fn below(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&self.prefix);
        let known = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
        (!known).then(|| format!("{}{path}", self.prefix))
    }

    /// The cookie for the prefix and this host alone. Without a path, browsers choose one that has
    /// the prefix. Browsers take bytes that are no text (RFC 6265, 5.2), so attributes are read byte
    /// for byte.
    fn cookie(&self, cookie: HeaderValue) -> HeaderValue {
        let mut parts = cookie.as_bytes().split(|byte| *byte == b';');
        let pair = parts.next().unwrap_or_default().to_owned();
        let kept = parts.filter_map(|part| self.attribute(part));
        let parts: Vec<_> = std::iter::once(pair).chain(kept).collect();
        HeaderValue::try_from(parts.join(&b';')).unwrap_or(cookie)
    }

    fn attribute(&self, part: &[u8]) -> Option<Vec<u8>> {
        let mut halves = part.splitn(2, |byte| *byte == b'=').map(<[u8]>::trim_ascii);
        let (name, value) = (halves.next()?, halves.next().unwrap_or_default());
        if name.eq_ignore_ascii_case(b"domain") {
            return None;
        }
        if !name.eq_ignore_ascii_case(b"path") || !value.starts_with(b"/") {
            return Some(part.to_owned());
        }
        Some([b" Path=", self.cookie_path(value).as_slice()].concat())
    }

    fn cookie_path(&self, path: &[u8]) -> Vec<u8> {
        let prefix = self.prefix.as_bytes();
        let rest = path.strip_prefix(prefix);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) {
            return path.to_owned();
        }
        let path = if path == b"/" { b"" } else { path };
        [prefix, path].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Base {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("RT.example:8443"));
        Base::new("/id/work-1", &headers)
    }

    #[test]
    fn links_to_the_servers_root_get_the_prefix_once() {
        for (link, expected) in [
            ("/login?next=/a", "/id/work-1/login?next=/a"),
            ("/", "/id/work-1/"),
            ("/id/work-10/", "/id/work-1/id/work-10/"),
            (
                "https://rt.example:8443/a",
                "https://rt.example:8443/id/work-1/a",
            ),
            (
                "http://rt.example:8443?a",
                "http://rt.example:8443/id/work-1/?a",
            ),
        ] {
            assert_eq!(base().link(link).as_deref(), Some(expected), "{link}");
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
            assert_eq!(base().link(link), None, "{link}");
        }
    }

    #[test]
    fn cookies_stay_below_the_prefix() {
        for (cookie, expected) in [
            ("a=1; Path=/; HttpOnly", "a=1; Path=/id/work-1; HttpOnly"),
            ("a=/; path = /x ;Secure", "a=/; Path=/id/work-1/x;Secure"),
            ("a=1; Path=/id/work-1/y", "a=1; Path=/id/work-1/y"),
            ("a=1; Domain=rt.example; Max-Age=3", "a=1; Max-Age=3"),
            ("a=1", "a=1"),
            ("domain=1; domain=rt.example", "domain=1"),
            (
                "path=/; path=/id/work-10",
                "path=/; Path=/id/work-1/id/work-10",
            ),
        ] {
            let moved = base().cookie(HeaderValue::from_static(cookie));
            assert_eq!(moved, expected, "{cookie}");
        }
    }

    #[test]
    fn a_cookie_that_is_no_text_has_no_domain_either() {
        let cookie = HeaderValue::from_bytes(b"a=\xed; Domain=rt.ex\xedample; Path=/\xed").unwrap();
        let moved = base().cookie(cookie);
        assert_eq!(moved.as_bytes(), b"a=\xed; Path=/id/work-1/\xed");
    }
}
