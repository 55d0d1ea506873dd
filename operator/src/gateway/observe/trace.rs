//! The trace that a request belongs to (W3C Trace Context, level 1): the client's, passed on as it
//! came, or a new one. It stands in log lines, so that those of all parts can be put together.

use http::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gateway) struct Trace {
    id: String,
}

impl Trace {
    /// Reads the client's trace, or begins one and enters it into the headers.
    pub(in crate::gateway) fn of(headers: &mut HeaderMap) -> Self {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let (first, second) = (lines.next(), lines.next());
        let text = first.filter(|_| second.is_none());
        let known = text.and_then(|text| trace_id(text.to_str().ok()?));
        if let Some(id) = known {
            return Self { id: id.to_owned() };
        }
        headers.remove(TRACEPARENT);
        // It says something about a trace that is none.
        headers.remove(TRACESTATE);
        Self { id: begin(headers) }
    }

    /// 32 hexadecimal digits.
    pub(in crate::gateway) fn id(&self) -> &str {
        &self.id
    }
}

/// Ids are to be unlike others, not secret, so asking the system for each is spared.
fn begin(headers: &mut HeaderMap) -> String {
    let id = format!("{:032x}", fastrand::u128(1..));
    // Nobody has decided to keep this trace.
    let line = format!("00-{id}-{:016x}-00", fastrand::u64(1..));
    if let Ok(line) = HeaderValue::try_from(line) {
        headers.insert(TRACEPARENT, line);
    }
    id
}

/// The id in a `traceparent` that holds to the rules. Versions to come may have more parts.
fn trace_id(text: &str) -> Option<&str> {
    let mut parts = text.splitn(5, '-');
    let (version, id) = (parts.next()?, parts.next()?);
    let (span, flags, more) = (parts.next()?, parts.next()?, parts.next());
    let hexadecimal = |text: &str, len| {
        let digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        text.len() == len && text.bytes().all(digit)
    };
    let something = |text: &str, len| hexadecimal(text, len) && text.bytes().any(|b| b != b'0');
    let known = hexadecimal(version, 2) && version != "ff" && (version != "00" || more.is_none());
    let valid = known && something(id, 32) && something(span, 16) && hexadecimal(flags, 2);
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
    fn a_clients_trace_is_passed_on() {
        for line in [
            format!("00-{ID}-{SPAN}-01"),
            format!("cc-{ID}-{SPAN}-01-what-will-be"),
        ] {
            let mut headers = headers(&[&line]);
            let before = headers.clone();
            assert_eq!(Trace::of(&mut headers).id(), ID);
            assert_eq!(headers, before);
        }
    }

    #[test]
    fn what_is_no_trace_is_replaced_by_a_new_one() {
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
            let id = Trace::of(&mut headers).id().to_owned();
            assert_ne!(id, ID, "{lines:?}");
            let line = headers[TRACEPARENT].to_str().unwrap().to_owned();
            assert_eq!(trace_id(&line), Some(&*id));
            assert!(!headers.contains_key(TRACESTATE));
            let mut again = HeaderMap::new();
            assert_ne!(Trace::of(&mut again).id(), id);
        }
    }
}
