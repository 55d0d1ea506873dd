//! The trace of a request (W3C Trace Context, level 1): the client's, passed on unchanged, or a new
//! one. Its id is in log lines, so that those of all components can be correlated.

use http::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Reads the id of the client's trace, or starts one and adds it to the headers.
pub(crate) fn trace_id(headers: &mut HeaderMap) -> String {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    let (first, second) = (lines.next(), lines.next());
    let text = first.filter(|_| second.is_none());
    if let Some(id) = text.and_then(|text| valid_id(text.to_str().ok()?)) {
        return id.to_owned();
    }
    headers.remove(TRACEPARENT);
    // It belongs to the invalid `traceparent`.
    headers.remove(TRACESTATE);
    start(headers)
}

/// Ids must be unique, not secret, so a fast generator is enough.
fn start(headers: &mut HeaderMap) -> String {
    let id = format!("{:032x}", fastrand::u128(1..));
    // The trace is not sampled.
    let line = format!("00-{id}-{:016x}-00", fastrand::u64(1..));
    if let Ok(line) = HeaderValue::try_from(line) {
        headers.insert(TRACEPARENT, line);
    }
    id
}

/// The id in a valid `traceparent`. Later versions may have more parts.
fn valid_id(text: &str) -> Option<&str> {
    let mut parts = text.splitn(5, '-');
    let (version, id) = (parts.next()?, parts.next()?);
    let (span, flags, more) = (parts.next()?, parts.next()?, parts.next());
    let is_hex = |text: &str, len| {
        let digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        text.len() == len && text.bytes().all(digit)
    };
    let is_nonzero_hex = |text: &str, len| is_hex(text, len) && text.bytes().any(|b| b != b'0');
    let valid_version =
        is_hex(version, 2) && version != "ff" && (version != "00" || more.is_none());
    let valid =
        valid_version && is_nonzero_hex(id, 32) && is_nonzero_hex(span, 16) && is_hex(flags, 2);
    valid.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn headers(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(TRACEPARENT, line.parse().unwrap());
        }
        headers.insert(TRACESTATE, HeaderValue::from_static("a=1"));
        headers
    }

    #[test]
    fn passes_valid_trace_on() {
        for line in [
            format!("00-{ID}-{SPAN}-01"),
            format!("cc-{ID}-{SPAN}-01-what-will-be"),
        ] {
            let mut headers = headers(&[&line]);
            let before = headers.clone();
            assert_eq!(trace_id(&mut headers), ID);
            assert_eq!(headers, before);
        }
    }

    #[test]
    fn replaces_invalid_trace() {
        let good = format!("00-{ID}-{SPAN}-01");
        let zero = format!("00-{}-{SPAN}-01", "0".repeat(32));
        for lines in [
            &[][..],
            &[&*good, &*good],
            &["00-1-2-3"],
            &[&*zero],
            &[&*good.to_uppercase()],
            &[&*format!("{good}-more")],
            &[&*format!("ff-{ID}-{SPAN}-01")],
            &[&*format!("00-{ID}-{}-01", "0".repeat(16))],
        ] {
            let mut headers = headers(lines);
            let id = trace_id(&mut headers);
            assert_ne!(id, ID, "{lines:?}");
            let line = headers[TRACEPARENT].to_str().unwrap().to_owned();
            assert_eq!(valid_id(&line), Some(&*id));
            assert!(!headers.contains_key(TRACESTATE));
            let mut again = HeaderMap::new();
            assert_ne!(trace_id(&mut again), id);
        }
    }
}
