//! Files too large to keep in memory, made and compared piece by piece.

use std::convert::Infallible;

use futures::{StreamExt as _, stream};
use http::{Method, Request};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tests::clients::http_client::LocalhostResolver;
use tests::size::full_or;

use crate::fixture::{fixture, text};

const MIB: usize = 1 << 20;
/// Prime, so that a piece in the wrong place is a wrong one.
const PERIOD: usize = 251;

/// Bytes that tell where they stand.
struct Content {
    piece: Bytes,
    size: usize,
}

impl Content {
    fn new(size: usize) -> Self {
        let piece: Vec<u8> = (0..=250).cycle().take(MIB + PERIOD).collect();
        Self {
            piece: piece.into(),
            size,
        }
    }

    /// At most a mebibyte, from here.
    fn at(&self, offset: usize) -> Bytes {
        let start = offset % PERIOD;
        let length = MIB.min(self.size - offset);
        self.piece.slice(start..start + length)
    }

    fn pieces(&self) -> impl Iterator<Item = Bytes> {
        (0..self.size).step_by(MIB).map(|offset| self.at(offset))
    }

    /// Panics at the first difference.
    async fn is(&self, mut body: Incoming) {
        let mut offset = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            for got in data.chunks(MIB) {
                assert!(offset + got.len() <= self.size, "more than was sent");
                assert!(got == &self.at(offset)[..got.len()], "after {offset} bytes");
                offset += got.len();
            }
        }
        assert_eq!(offset, self.size);
    }
}

/// Sends these pieces; the answer, which is 200.
async fn send(method: Method, url: &str, headers: &[(&str, &str)], pieces: Vec<Bytes>) -> Incoming {
    let frames = stream::iter(pieces).map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let client = Client::builder(TokioExecutor::new());
    let client = client.build(HttpConnector::new_with_resolver(LocalhostResolver));
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(StreamBody::new(frames)).unwrap();
    let response = client.request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    response.into_body()
}

#[tokio::test]
async fn item_11_large_files_are_transferred_both_ways() {
    let Some(fixture) = fixture() else { return };
    let (info, _) = fixture.started("s").await;
    let content = Content::new(full_or(1 << 30, 1 << 27));
    let key = text(&info, "session_api_key");
    let headers = [("X-Session-API-Key", key.as_str())];
    let url = text(&info, "url");
    let file = |verb| format!("{url}/api/file/{verb}?path=/workspace/large");
    let pieces = content.pieces().collect();
    let sent = send(Method::POST, &file("upload"), &headers, pieces).await;
    sent.collect().await.unwrap();
    let back = send(Method::GET, &file("download"), &headers, Vec::new()).await;
    content.is(back).await;
}

#[tokio::test]
async fn item_11_v0_transfers_large_files_both_ways() {
    let Some(fixture) = fixture() else { return };
    let content = Content::new(full_or(1 << 30, 1 << 27));
    let mut client = fixture.connected("s").await;
    let key = client.session_key.clone().unwrap();
    let kind = "multipart/form-data; boundary=between";
    let headers = [("X-Session-API-Key", key.as_str()), ("Content-Type", kind)];
    let head =
        "--between\r\nContent-Disposition: form-data; name=\"file\"; filename=\"large\"\r\n\r\n";
    let ends = [head, "\r\n--between--\r\n"].map(|text| Bytes::from_static(text.as_bytes()));
    let [first, last] = ends;
    let pieces = [first].into_iter().chain(content.pieces()).chain([last]);
    let query = "destination=/workspace&recursive=false";
    let url = format!("{}/upload_file?{query}", client.url);
    let sent = send(Method::POST, &url, &headers, pieces.collect()).await;
    sent.collect().await.unwrap();
    let size = client.run("stat -c %s /workspace/large").await.unwrap();
    assert_eq!(size, content.size.to_string());
    // Incompressible content, so that as much comes back.
    let made = format!("head -c {} /dev/urandom > /workspace/large", content.size);
    client.config.action_timeout *= 5;
    client.run(&made).await.unwrap();
    let url = format!("{}/download_files?path=/workspace", client.url);
    let mut zip = send(Method::GET, &url, &headers[..1], Vec::new()).await;
    let mut length = 0;
    while let Some(frame) = zip.frame().await {
        length += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    assert!(length > content.size, "{length}");
}
