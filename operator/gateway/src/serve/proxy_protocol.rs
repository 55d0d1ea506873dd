//! PROXY protocol, versions 1 and 2 (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>):
//! the header by which a proxy reports the address of its client.
//!
//! Libraries parse a buffer that holds the header and more. Here nothing may be read beyond it,
//! because TLS comes next.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// First bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Longest header of version 1 (section 2.1 of the specification).
const MAX_V1_BYTES: usize = 107;
/// Longest part of version 2 after the length. Addresses take 36 bytes; the rest is ignored.
const MAX_V2_BYTES: usize = 2048;

/// Reads a header. `None` if it reports no TCP client, as that of a health check.
pub(super) async fn read_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<SocketAddr>> {
    // Every header has more bytes than this.
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start == SIGNATURE {
        return read_v2(stream).await;
    }
    let mut line = start.to_vec();
    while line.starts_with(b"PROXY ") && !line.ends_with(b"\r\n") && line.len() < MAX_V1_BYTES {
        line.push(stream.read_u8().await?);
    }
    parse_v1(&line)
}

async fn read_v2(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let (command, family) = (stream.read_u8().await?, stream.read_u8().await?);
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_V2_BYTES {
        return Err(malformed());
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    parse_v2(command, family, &rest)
}

fn parse_v1(line: &[u8]) -> io::Result<Option<SocketAddr>> {
    let line = str::from_utf8(line).ok();
    let line = line.and_then(|line| line.strip_suffix("\r\n"));
    let fields: Vec<_> = line.unwrap_or_default().split(' ').collect();
    match fields[..] {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", "TCP4", source, to, port, to_port] => {
            v1_source::<Ipv4Addr>([source, to], [port, to_port])
        }
        ["PROXY", "TCP6", source, to, port, to_port] => {
            v1_source::<Ipv6Addr>([source, to], [port, to_port])
        }
        _ => Err(malformed()),
    }
}

/// Source, if both addresses and both ports are sound.
fn v1_source<T: FromStr + Into<IpAddr>>(
    addresses: [&str; 2],
    ports: [&str; 2],
) -> io::Result<Option<SocketAddr>> {
    match (addresses.map(T::from_str), ports.map(u16::from_str)) {
        ([Ok(source), Ok(_)], [Ok(port), Ok(_)]) => Ok(Some(SocketAddr::new(source.into(), port))),
        _ => Err(malformed()),
    }
}

fn parse_v2(command: u8, family: u8, rest: &[u8]) -> io::Result<Option<SocketAddr>> {
    let source = match (command, family) {
        // LOCAL: the proxy itself connects. UDP and Unix sockets have no address that counts here.
        (0x20, _) | (0x21, 0x00 | 0x12 | 0x22 | 0x31 | 0x32) => return Ok(None),
        // PROXY, TCP over IPv4 and IPv6.
        (0x21, 0x11) => v2_source::<4>(rest),
        (0x21, 0x21) => v2_source::<16>(rest),
        _ => None,
    };
    source.map(Some).ok_or_else(malformed)
}

/// Source of both addresses of `N` bytes, which both ports follow.
fn v2_source<const N: usize>(rest: &[u8]) -> Option<SocketAddr>
where
    IpAddr: From<[u8; N]>,
{
    let source = *rest.first_chunk::<N>()?;
    let [high, low, _, _] = *rest.get(2 * N..)?.first_chunk()?;
    Some((source, u16::from_be_bytes([high, low])).into())
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed PROXY header")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a header from `bytes`; the reported client and the bytes that are left.
    fn read(mut bytes: &[u8]) -> Option<(Option<SocketAddr>, usize)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let read = runtime.unwrap().block_on(read_header(&mut bytes));
        Some((read.ok()?, bytes.len()))
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    #[test]
    fn headers_of_both_versions_report_the_client_and_are_read_to_their_end() {
        let v4 = [10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 80];
        let mut v6 = [0; 36];
        (v6[15], v6[31], v6[33]) = (1, 2, 7);
        let long = "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                    ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
        let highest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
        for (header, client) in [
            (
                b"PROXY TCP4 10.0.0.1 10.0.0.2 12345 80\r\n".to_vec(),
                Some("10.0.0.1:12345"),
            ),
            (b"PROXY TCP6 ::1 ::2 7 80\r\n".to_vec(), Some("[::1]:7")),
            (long.into(), Some(highest)),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), None),
            (v2(0x21, 0x11, &v4), Some("10.0.0.1:12345")),
            (
                v2(0x21, 0x11, &[&v4[..], b"and more"].concat()),
                Some("10.0.0.1:12345"),
            ),
            (v2(0x21, 0x21, &v6), Some("[::1]:7")),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, &v4), None),
            (v2(0x21, 0x31, &[0; 216]), None),
        ] {
            let client = client.map(|client| client.parse().unwrap());
            let found = read(&[&header[..], b"GET /"].concat());
            assert_eq!(found, Some((client, 5)), "{header:?}");
        }
    }

    #[test]
    fn malformed_and_oversized_headers_are_rejected() {
        let oversized = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_V1_BYTES));
        for header in [
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            b"PROXY TCP4 10.0.0.1 10.0.0.2 12345\r\n".to_vec(),
            b"PROXY TCP4 ::1 ::2 1 2\r\n".to_vec(),
            b"PROXY TCP4 10.0.0.1 10.0.0.2 65536 80\r\n".to_vec(),
            b"PROXY TCP4 10.0.0.1  10.0.0.2 1 80\r\n".to_vec(),
            b"PROXY TCP4 10.0.0.1 10.0.0.2 1 80\n\n\n\n".to_vec(),
            b"PROXY UNIX a b\r\n".to_vec(),
            oversized.into_bytes(),
            b"PROXY UNKNOWN".to_vec(),
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x11, &[0; 11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x44, &[0; 36]),
            v2(0x20, 0x00, &[0; MAX_V2_BYTES + 1]),
            v2(0x21, 0x11, &[0; 12])[..20].to_vec(),
        ] {
            let text = String::from_utf8_lossy(&header);
            assert_eq!(read(&header), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_within_the_bounds(
            start in prop::sample::select(vec![&b"PROXY TCP4 "[..], b"PROXY ", &SIGNATURE, b""]),
            rest in prop::collection::vec(any::<u8>(), 0..4096),
        ) {
            let bytes = [start, &rest].concat();
            if let Some((_, left)) = read(&bytes) {
                prop_assert!(bytes.len() - left <= SIGNATURE.len() + 4 + MAX_V2_BYTES);
            }
        }
    }
}
