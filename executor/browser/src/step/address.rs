//! Address of a `browse` action as a program.

use std::borrow::Cow;

/// Program of a visit. The URL is pasted as it is, as in the original (section 1.1): a quote in it
/// breaks the program.
pub fn visit_program(url: &str) -> String {
    format!("goto(\"{}\")", with_scheme(url))
}

/// Keeps `http…`; a path gets `file://`, a word that looks like a host `http://`.
fn with_scheme(url: &str) -> Cow<'_, str> {
    if url.starts_with("http") || url.contains("://") {
        Cow::Borrowed(url)
    } else if url.starts_with('/') {
        Cow::Owned(format!("file://{url}"))
    } else if is_host_like(url) {
        Cow::Owned(format!("http://{url}"))
    } else {
        Cow::Borrowed(url)
    }
}

/// `example.com`, `localhost:8000/x`, `127.0.0.1`; not `about:blank`, `data:…` or `javascript:…`.
fn is_host_like(url: &str) -> bool {
    let authority = url.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = authority.split_once(':').unwrap_or((authority, "0"));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let is_host = host == "localhost" || host.contains('.');
    is_host && host.bytes().all(is_name) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_the_scheme_they_lack() {
        for (url, expected) in [
            ("http://a/b", "http://a/b"),
            ("https://a", "https://a"),
            ("file:///x", "file:///x"),
            ("/workspace/a.html", "file:///workspace/a.html"),
            ("example.com/x?y", "http://example.com/x?y"),
            ("localhost:8000", "http://localhost:8000"),
            ("127.0.0.1:1/a", "http://127.0.0.1:1/a"),
            ("about:blank", "about:blank"),
            ("data:text/html,a.b", "data:text/html,a.b"),
            ("javascript:alert(1)", "javascript:alert(1)"),
            ("word", "word"),
        ] {
            assert_eq!(visit_program(url), format!("goto(\"{expected}\")"));
        }
    }
}
