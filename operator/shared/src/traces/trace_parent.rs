//! `traceparent` of W3C Trace Context, level 1.

use std::fmt;

use http::{HeaderMap, HeaderName};
use opentelemetry::trace::{SpanId, TraceFlags, TraceId};

/// Header of the trace that a request belongs to.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Trace and span that another span can have as its parent. The text form is the header's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) flags: TraceFlags,
}

impl TraceParent {
    /// Reads a header or annotation. `None` if it is malformed. Later versions may have more parts.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        let (version, trace) = (parts.next()?, parts.next()?);
        let (span, flags, more) = (parts.next()?, parts.next()?, parts.next());
        let is_known = is_hex(version, 2) && version != "ff" && (version != "00" || more.is_none());
        if !(is_known && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2)) {
            return None;
        }
        let parent = Self {
            trace_id: TraceId::from_hex(trace).ok()?,
            span_id: SpanId::from_hex(span).ok()?,
            // The other bits may have another meaning in a later version.
            flags: TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED,
        };
        let is_valid = parent.trace_id != TraceId::INVALID && parent.span_id != SpanId::INVALID;
        is_valid.then_some(parent)
    }

    /// Reads the header of a request. Several of them are invalid.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let (first, second) = (lines.next(), lines.next());
        let text = first.filter(|_| second.is_none());
        Self::parse(text?.to_str().ok()?)
    }

    /// Id of the trace in 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.trace_id.to_string()
    }

    pub fn is_sampled(&self) -> bool {
        self.flags.is_sampled()
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace_id,
            span_id,
            flags,
        } = self;
        write!(f, "00-{trace_id}-{span_id}-{flags:02x}")
    }
}

fn is_hex(text: &str, len: usize) -> bool {
    let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    text.len() == len && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn parses_valid_parents() {
        for (text, sampled) in [
            (format!("00-{TRACE}-{SPAN}-00"), false),
            (format!("00-{TRACE}-{SPAN}-03"), true),
            (format!("cc-{TRACE}-{SPAN}-01-what-will-be"), true),
        ] {
            let parent = TraceParent::parse(&text).unwrap();
            assert_eq!(
                (parent.trace_id(), parent.is_sampled()),
                (TRACE.into(), sampled)
            );
            let flags = u8::from(sampled);
            assert_eq!(parent.to_string(), format!("00-{TRACE}-{SPAN}-{flags:02x}"));
        }
    }

    #[test]
    fn rejects_invalid_parents() {
        let good = format!("00-{TRACE}-{SPAN}-01");
        for text in [
            "",
            "00-1-2-3",
            &good.to_uppercase(),
            &format!("{good}-more"),
            &format!("ff-{TRACE}-{SPAN}-01"),
            &format!("00-{}-{SPAN}-01", "0".repeat(32)),
            &format!("00-{TRACE}-{}-01", "0".repeat(16)),
            &format!("00-{TRACE}-{SPAN}-é"),
        ] {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
    }
}
