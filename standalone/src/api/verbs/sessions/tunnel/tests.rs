use std::future::pending;

use futures::FutureExt as _;
use tokio::{
    io::{AsyncReadExt as _, ReadHalf, WriteHalf, split},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::api::verbs::sessions::spdy::tests::HeaderDeflater;

struct Client {
    frames: FrameReader<ReadHalf<DuplexStream>>,
    output: WriteHalf<DuplexStream>,
    headers: HeaderDeflater,
}

impl Client {
    fn new(connect: Arc<Connect>) -> Self {
        let (server, client) = duplex(64 << 10);
        let (input, output) = split(server);
        tokio::spawn(run(input, output, connect));
        let (input, output) = split(client);
        let (frames, headers) = (FrameReader::new(input), HeaderDeflater::new());
        Self {
            frames,
            output,
            headers,
        }
    }

    async fn send(&mut self, frame: Bytes) {
        self.output.write_all(&frame).await.unwrap();
    }

    async fn open(&mut self, stream: u32, kind: &str, port: &str, request: &str) {
        let headers = [("streamtype", kind), ("port", port), ("requestid", request)];
        let frame = self.headers.open(stream, &headers);
        self.send(frame).await;
    }

    /// Opens both streams of a connection; the numbers are those of kubectl.
    async fn connect(&mut self, error: u32) {
        for (stream, kind) in [(error, "error"), (error + 2, "data")] {
            self.open(stream, kind, "80", &error.to_string()).await;
            assert_eq!(self.read().await, Frame::Other);
        }
    }

    async fn read(&mut self) -> Frame {
        self.next().await.unwrap()
    }

    /// The next frame that is no ping of the server; `None` at the end.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            match self.frames.next().await.ok()? {
                Frame::Ping(2) => {}
                frame => return Some(frame),
            }
        }
    }
}

fn sent(stream: u32, text: &str, is_last: bool) -> Frame {
    let data = text.as_bytes().to_vec();
    Frame::Data {
        stream,
        data,
        is_last,
    }
}

fn never() -> Arc<Connect> {
    Arc::new(|_| pending().boxed())
}

#[tokio::test]
async fn connection_ends_one_way_after_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = Client::new(Arc::new(move |port| {
        assert_eq!(port, 80);
        async move { TcpStream::connect(address).await.map_err(|e| e.to_string()) }.boxed()
    }));
    client.connect(1).await;
    client.send(spdy::data(3, b"hel", false)).await;
    client.send(spdy::data(3, b"lo", true)).await;
    let (mut pod, _) = listener.accept().await.unwrap();
    let mut received = String::new();
    pod.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "hello");
    pod.write_all(b"answer").await.unwrap();
    assert_eq!(client.read().await, sent(3, "answer", false));
    drop(pod);
    assert_eq!(client.read().await, sent(3, "", true));
    assert_eq!(client.read().await, sent(1, "", true));
}

#[tokio::test]
async fn failure_to_connect_is_the_text_of_the_error_stream() {
    let refused = |_| async { Err("refused".to_owned()) }.boxed();
    let mut client = Client::new(Arc::new(refused));
    client.connect(1).await;
    assert_eq!(client.read().await, sent(1, "refused", false));
    assert_eq!(client.read().await, Frame::Reset(3));
    assert_eq!(client.read().await, sent(1, "", true));
}

#[tokio::test]
async fn malformed_streams_are_reset_and_a_stream_number_cannot_return() {
    let mut client = Client::new(never());
    for (stream, kind, port) in [
        (1, "error", "0"),
        (3, "error", "65536"),
        (5, "other", "80"),
        (7, "data", "80"),
    ] {
        client.open(stream, kind, port, "0").await;
        assert_eq!(client.read().await, Frame::Reset(stream));
    }
    client.send(spdy::ping(9)).await;
    assert_eq!(client.read().await, Frame::Ping(9));
    client.open(7, "error", "80", "0").await;
    assert_eq!(client.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn connections_are_bounded_until_one_ends() {
    let mut client = Client::new(never());
    let number = u32::try_from(MAX_CONNECTIONS).unwrap();
    for index in 0..number {
        client.connect(4 * index + 1).await;
    }
    let next = 4 * number + 1;
    client.open(next, "error", "80", "x").await;
    assert_eq!(client.read().await, Frame::Other);
    client.open(next + 2, "data", "80", "x").await;
    assert_eq!(client.read().await, Frame::Reset(next + 2));
    client.send(spdy::reset(3, spdy::CANCEL)).await;
    assert_eq!(client.read().await, sent(1, "", true));
    client.connect(next + 4).await;
}

#[tokio::test(start_paused = true)]
async fn connection_that_takes_no_data_is_reset() {
    let mut client = Client::new(never());
    client.connect(1).await;
    client
        .send(spdy::data(3, &vec![0; UNSENT_BYTES + 1], false))
        .await;
    client.send(spdy::ping(1)).await;
    assert_eq!(client.read().await, Frame::Reset(3));
    assert_eq!(client.read().await, sent(1, "", true));
    assert_eq!(client.read().await, Frame::Ping(1));
}
