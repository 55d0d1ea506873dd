//! Links and cookies of a server that was reached by a path. It may not know of the prefix, so what
//! it says about its own root is put below it; what has the prefix already is left alone.
//!
//! All sandboxes share one origin there. A cookie that stays below its prefix is not sent to others,
//! nor one of a server on a host of its own that stays on it.

use http::header::{CONTENT_LOCATION, HOST, LOCATION, SET_COOKIE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::route::Prefix;

/// By this a page would log its user out of everything below the registrable domain, which other
/// sandboxes and the application share whatever the form of the URLs.
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// By these a page would rule over, or listen to, all of an origin that it shares with others: a
/// browser keeps them, or what they allow, when the page is gone.
const OF_THE_ORIGIN: [HeaderName; 5] = [
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    http::header::ALT_SVC,
    http::header::STRICT_TRANSPORT_SECURITY,
];

/// Where the answer of a server comes to light.
#[derive(Debug)]
pub(super) struct Base {
    prefix: String,
    /// Whether the server knows of the prefix, so that its links have it.
    kept: bool,
    /// As the client wrote it.
    host: Option<Authority>,
}

impl Base {
    /// `headers` are those of the request.
    pub(super) fn new(prefix: &Prefix, headers: &HeaderMap) -> Self {
        let host = headers.get(HOST).map(HeaderValue::as_bytes);
        Self {
            prefix: prefix.text.clone(),
            kept: prefix.kept,
            host: host.and_then(|host| Authority::try_from(host).ok()),
        }
    }

    /// Corrects the headers of an answer.
    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        if !self.kept {
            for name in [LOCATION, CONTENT_LOCATION] {
                self.apply_to_link(headers, name);
            }
        }
        headers.remove(CLEAR_SITE_DATA);
        for name in &OF_THE_ORIGIN {
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

    /// The cookie for the prefix and this host alone. Of several paths the last counts; without one,
    /// browsers would choose the folder of the request, which may be above the prefix. They take bytes
    /// that are no text (RFC 6265, 5.2), so attributes are read byte for byte.
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

/// Keeps the cookies of a server that has a host of its own on that host: one for the whole domain
/// would be sent to all other sandboxes, and could stand in the place of theirs. Nor may it take
/// theirs away.
pub(super) fn keep_on_host(headers: &mut HeaderMap) {
    headers.remove(CLEAR_SITE_DATA);
    for_each_cookie(headers, without_domain);
}

/// Name and value of an attribute of a cookie.
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
    fn cookies_of_a_host_are_not_for_its_domain() {
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
        keep_on_host(&mut headers);
        let cookies = headers.get_all(SET_COOKIE).iter();
        let cookies: Vec<_> = cookies.map(HeaderValue::as_bytes).collect();
        let expected = [
            b"a=1; Path=/; HttpOnly".as_slice(),
            b"b=1; Secure",
            b"domain=1",
            b"c=\xed",
        ];
        assert_eq!(cookies, expected);
        // A host of its own is its to rule, but the domain is not.
        assert!(headers.contains_key("service-worker-allowed"));
        assert!(!headers.contains_key(CLEAR_SITE_DATA));
    }

    #[test]
    fn nobody_rules_over_an_origin_of_many() {
        for kept in [false, true] {
            let mut headers = HeaderMap::new();
            for name in OF_THE_ORIGIN.iter().chain([&CLEAR_SITE_DATA]) {
                headers.insert(name, HeaderValue::from_static("/"));
            }
            base_of(kept).apply(&mut headers);
            assert!(headers.is_empty(), "{headers:?}");
        }
    }

    #[test]
    fn a_server_that_knows_its_prefix_has_it_in_its_links_and_keeps_its_cookies_below() {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_static("/y"));
        headers.insert(SET_COOKIE, HeaderValue::from_static("a=1; Path=/"));
        base_of(true).apply(&mut headers);
        assert_eq!(headers[LOCATION], "/y");
        assert_eq!(headers[SET_COOKIE], "a=1; Path=/id/work-1");
    }

    fn base() -> Base {
        base_of(false)
    }

    fn base_of(kept: bool) -> Base {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("RT.example:8443"));
        let prefix = Prefix {
            text: "/id/work-1".into(),
            len: 0,
            kept,
        };
        Base::new(&prefix, &headers)
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
            ("a=1; Path=/; HttpOnly", "a=1; HttpOnly; Path=/id/work-1"),
            ("a=/; path = /x ;Secure", "a=/;Secure; Path=/id/work-1/x"),
            ("a=1; Path=/id/work-1/y", "a=1; Path=/id/work-1/y"),
            (
                "a=1; Domain=rt.example; Max-Age=3",
                "a=1; Max-Age=3; Path=/id/work-1",
            ),
            ("a=1", "a=1; Path=/id/work-1"),
            ("a=1; Path=x", "a=1; Path=/id/work-1"),
            ("a=1; Path=/x; Path", "a=1; Path=/id/work-1"),
            ("domain=1; domain=rt.example", "domain=1; Path=/id/work-1"),
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
