//! Head of a request to a proxy (RFC 9112, 3).

use std::io;

use http::HeaderValue;

const END: &[u8] = b"\r\n\r\n";
const MAX_BYTES: usize = 256 << 10;
/// Fields of a connection, which the forwarder replaces.
const REPLACED: [&[u8]; 3] = [b"connection", b"proxy-connection", b"proxy-authorization"];

#[derive(Debug, thiserror::Error)]
pub(super) enum HeadError {
    #[error("a request has no line of its own, or more than {MAX_BYTES} bytes in its head")]
    Malformed,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Length of the head with its empty line, if that is complete.
pub(super) fn length(received: &[u8]) -> Result<Option<usize>, HeadError> {
    let end = received.windows(END.len()).position(|bytes| bytes == END);
    match end {
        None if received.len() > MAX_BYTES => Err(HeadError::Malformed),
        end => Ok(end.map(|end| end + END.len())),
    }
}

/// Adds the credentials. Except for a tunnel, the connection serves this request only: further ones would
/// need the field too.
pub(super) fn authorized(head: &[u8], authorization: &HeaderValue) -> Result<Vec<u8>, HeadError> {
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let request = lines.next().filter(|line| line.ends_with(b"\r\n"));
    let request = request.ok_or(HeadError::Malformed)?;
    let mut changed = request.to_vec();
    changed.extend_from_slice(b"Proxy-Authorization: ");
    changed.extend_from_slice(authorization.as_bytes());
    changed.extend_from_slice(b"\r\n");
    if !request.starts_with(b"CONNECT ") {
        changed.extend_from_slice(b"Connection: close\r\n");
    }
    for line in lines {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        if !REPLACED
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
        {
            changed.extend_from_slice(line);
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(head: &str) -> String {
        let authorization = HeaderValue::from_static("Basic YTpi");
        String::from_utf8(authorized(head.as_bytes(), &authorization).unwrap()).unwrap()
    }

    #[test]
    fn request_is_the_last_of_its_connection() {
        let head = "GET http://a/ HTTP/1.1\r\nHost: a\r\nProxy-Connection: keep-alive\r\n\
                    proxy-authorization: old\r\nX: y\r\n\r\n";
        let expected = "GET http://a/ HTTP/1.1\r\nProxy-Authorization: Basic YTpi\r\n\
                        Connection: close\r\nHost: a\r\nX: y\r\n\r\n";
        assert_eq!(changed(head), expected);
    }

    #[test]
    fn tunnel_stays_open() {
        let head = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nProxy-Connection: keep-alive\r\n\r\n";
        let expected =
            "CONNECT a:443 HTTP/1.1\r\nProxy-Authorization: Basic YTpi\r\nHost: a:443\r\n\r\n";
        assert_eq!(changed(head), expected);
    }

    #[test]
    fn head_has_an_end_and_a_bound() {
        assert_eq!(length(b"GET / HTTP/1.1\r\n").unwrap(), None);
        assert_eq!(length(b"A\r\n\r\nbody").unwrap(), Some(5));
        assert!(length(&vec![b'a'; MAX_BYTES + 1]).is_err());
    }
}
