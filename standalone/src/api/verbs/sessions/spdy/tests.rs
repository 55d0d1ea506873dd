use std::{future::Future as _, pin::pin, task};

use flate2::{Compress, Compression, FlushCompress};

use super::headers::{DICTIONARY, prefixed};
use super::*;

/// Writes the header blocks of a client.
pub(in super::super) struct HeaderDeflater(Compress);

impl HeaderDeflater {
    pub(in super::super) fn new() -> Self {
        let mut compress = Compress::new(Compression::best(), true);
        // The checksum of the specification's dictionary.
        assert_eq!(compress.set_dictionary(&DICTIONARY).unwrap(), 0xe3c6_a7c2);
        Self(compress)
    }

    pub(in super::super) fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Bytes {
        let number = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
        let pairs = headers
            .iter()
            .flat_map(|(name, value)| [prefixed(name), prefixed(value)]);
        let block = [number]
            .into_iter()
            .chain(pairs)
            .collect::<Vec<_>>()
            .concat();
        let mut compressed = Vec::with_capacity(1 << 20);
        self.0
            .compress_vec(&block, &mut compressed, FlushCompress::Sync)
            .unwrap();
        control(SYN_STREAM, &[&stream.to_be_bytes(), &[0; 6], &compressed])
    }
}

/// All frames of an input, and whether it ended between two of them.
fn read(input: &[u8]) -> (Vec<Frame>, bool) {
    let mut reader = FrameReader::new(input);
    let mut frames = Vec::new();
    let mut context = task::Context::from_waker(task::Waker::noop());
    loop {
        let is_end = reader.input.is_empty();
        match pin!(reader.next()).poll(&mut context) {
            task::Poll::Ready(Ok(frame)) => frames.push(frame),
            _ => return (frames, is_end),
        }
    }
}

fn session() -> Vec<u8> {
    let mut client = HeaderDeflater::new();
    let goaway = control(GOAWAY, &[&[0; 8]]);
    let frames = [
        client.open(1, &[("streamtype", "error"), ("port", "80")]),
        client.open(3, &[("streamtype", "data"), ("port", "80")]),
        data(3, b"hello", false),
        data(3, b"", true),
        control(4, &[&[0; 4]]),
        reset(3, CANCEL),
        ping(7),
        goaway,
    ];
    frames.concat()
}

#[test]
fn frames_of_a_client_are_read() {
    let opened = |stream, kind: &str| {
        let headers = [("streamtype", kind), ("port", "80")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Frame::Open {
            stream,
            headers: headers.into(),
        }
    };
    let sent = |data: &[u8], is_last| Frame::Data {
        stream: 3,
        data: data.to_vec(),
        is_last,
    };
    let frames = vec![
        opened(1, "error"),
        opened(3, "data"),
        sent(b"hello", false),
        sent(b"", true),
        Frame::Other,
        Frame::Reset(3),
        Frame::Ping(7),
        Frame::GoAway,
    ];
    assert_eq!(read(&session()), (frames, true));
}

/// Both are read by the same stream of decompression.
#[test]
fn replies_have_no_headers() {
    let replies = [reply(1, true), reply(3, false)].concat();
    assert_eq!(read(&replies), (vec![Frame::Other, Frame::Other], true));
}

#[test]
fn damaged_frames_end_the_session_without_panic() {
    let session = session();
    for end in 0..session.len() {
        read(&session[..end]);
        for bit in 0..8 {
            let mut damaged = session.clone();
            damaged[end] ^= 1 << bit;
            read(&damaged);
        }
    }
    let open = HeaderDeflater::new().open(1, &[("port", "80")]);
    let bomb = HeaderDeflater::new().open(1, &[("port", &"0".repeat(1 << 20))]);
    assert!(bomb.len() < 2000);
    let version = [&0x8002_0006_u32.to_be_bytes()[..], &[0; 8]].concat();
    let long = (MAX_FRAME_BYTES + 1).to_be_bytes();
    let long = [&1_u32.to_be_bytes()[..], &long, &vec![0; 2 << 20]].concat();
    for malformed in [
        &bomb[..],
        &open[..open.len() - 1],
        &control(SYN_STREAM, &[&[0; 5]]),
        &control(HEADERS, &[&[0; 9]]),
        &control(PING, &[&[0; 3]]),
        &version,
        &long,
    ] {
        assert_eq!(read(malformed), (vec![], false), "{malformed:?}");
    }
}
