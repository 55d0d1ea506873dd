//! Sessions with containers: `kubectl exec`, `attach`, `cp` and `port-forward`, and the WebSocket
//! protocol of other clients.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tests::cli_tools::output_with;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::fixture::{Fixture, standalone};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends back what it receives on port 8000.
const SERVER: &str = "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalPort => 8000, \
    Listen => 9) or die; while (my $c = $s->accept) { print $c scalar <$c>; close $c }";

/// Standalone with running Pods: `p` with one confined container, `two` with two.
fn pods() -> Option<Fixture> {
    let fixture = standalone()?;
    let confined = json!({"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}});
    let pod = |name: &str, containers: &[Value]| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "containers": containers}})
    };
    let main = json!({"name": "main", "image": "debian:12", "workingDir": "/tmp",
        "command": ["sh", "-c", "while ! test -e /tmp/end; do sleep 0.1; done; echo end"],
        "env": [{"name": "GREETING", "value": "hello"}], "securityContext": confined});
    let echo = json!({"name": "echo", "image": "debian:12", "command": ["perl", "-e", SERVER]});
    let idle = json!({"name": "idle", "image": "debian:12", "command": ["sleep", "infinity"]});
    let items = [pod("p", &[main]), pod("two", &[echo, idle])];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let file = fixture.state.path().join("pods.json");
    std::fs::write(&file, list.to_string()).unwrap();
    fixture.kubectl(&format!("apply -f {}", file.display()));
    fixture.kubectl("wait --for=condition=Ready pod/p pod/two --timeout=60s");
    Some(fixture)
}

/// Runs kubectl; exit code, output and errors.
fn kubectl(fixture: &Fixture, args: &[&str], input: &str) -> (i32, String, String) {
    let output = output_with(fixture.standalone.command("kubectl").args(args), input);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

/// Rows: arguments, input, exit code, output, and a part of the errors.
#[test]
fn kubectl_shows_output_and_exit_code_of_commands() {
    let Some(fixture) = pods() else { return };
    for row in [
        "exec p -- sh -c 'echo out; echo err >&2; exit 3'; ; 3; out\n; err\n",
        "exec p -- sh -c 'echo $GREETING; pwd'; ; 0; hello\n/tmp\n; ",
        "exec p -- sh -c 'kill -9 $$'; ; 137; ; exit code 137",
        "exec -i p -- cat; in; 0; in; ",
        "exec p -- nosuch; ; 127; ; cannot execute \"nosuch\"",
        "exec p -- /etc/passwd; ; 126; ; Permission denied",
        "exec two -c idle -- hostname; ; 0; two\n; ",
        "exec p -c x -- ls; ; 1; ; container x is not valid for pod p",
        "exec none -- ls; ; 1; ; pods \"none\" not found",
        "attach -i p; ; 1; ; containers have no standard input here",
        "logs p --previous; ; 1; ; previous terminated container \"main\" in pod \"p\" not found",
    ] {
        let mut fields = row.rsplitn(5, "; ");
        let [err, out, code, input, words] = [(); 5].map(|()| fields.next().unwrap());
        let words = crds::shell_words::split(words).unwrap();
        let args: Vec<_> = words.iter().map(String::as_str).collect();
        let (ended, output, errors) = kubectl(&fixture, &args, input);
        assert_eq!(
            (ended.to_string().as_str(), output.as_str()),
            (code, out),
            "{row}: {errors}"
        );
        assert!(errors.contains(err), "{row}: {errors}");
    }
}

#[test]
fn kubectl_cp_copies_both_ways() {
    let Some(fixture) = pods() else { return };
    let content = "0123456789abcdef\n".repeat(100_000);
    let [from, to] = ["from", "to"].map(|name| fixture.state.path().join(name));
    std::fs::write(&from, &content).unwrap();
    fixture.kubectl(&format!("cp {} p:/tmp/file", from.display()));
    fixture.kubectl(&format!("cp p:/tmp/file {}", to.display()));
    assert!(std::fs::read_to_string(&to).unwrap() == content);
}

/// The first process is the container's own.
#[test]
fn command_is_confined_as_its_container() {
    let Some(fixture) = pods() else { return };
    let run = |script: &str, argument: &str| {
        let args = ["exec", "p", "--", "sh", "-c", script, "sh", argument];
        kubectl(&fixture, &args, "").1
    };
    let limits = "cd /proc/$1 && grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp)' status && \
        cat cgroup limits && tr '\\0' '\\n' < environ | grep -v ^PWD | sort && for name in ns/*; do readlink $name; done";
    let of_command = run(limits, "self");
    assert_eq!(of_command, run(limits, "1"));
    assert!(
        of_command.contains("CapBnd:\t0000000000000000\nCapAmb:"),
        "{of_command}"
    );
    let state = fixture.state.path().display().to_string();
    assert_eq!(
        run("echo /proc/self/fd/*; ls -d $1", &state),
        "/proc/self/fd/0 /proc/self/fd/1 \
        /proc/self/fd/2 /proc/self/fd/3\n"
    );
}

pub(crate) type Socket = WebSocketStream<TcpStream>;

/// Opens a session with a Pod; the error is the HTTP status.
pub(crate) async fn open(fixture: &Fixture, path: &str) -> Result<Socket, u16> {
    let kubeconfig = std::fs::read_to_string(&fixture.standalone.env["KUBECONFIG"]).unwrap();
    let kubeconfig: Value = serde_yaml::from_str(&kubeconfig).unwrap();
    let server = kubeconfig["clusters"][0]["cluster"]["server"]
        .as_str()
        .unwrap();
    let address = server.split('/').nth(2).unwrap();
    let url = server.replacen("http", "ws", 1);
    let url = format!("{url}/api/v1/namespaces/default/pods/{path}");
    let mut request = url.into_client_request().unwrap();
    let protocol = "v5.channel.k8s.io".parse().unwrap();
    request
        .headers_mut()
        .insert("Sec-WebSocket-Protocol", protocol);
    let stream = TcpStream::connect(address).await.unwrap();
    match client_async(request, stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// Reads a channel until it contains `expected` or the session ends; what came.
pub(crate) async fn read(socket: &mut Socket, channel: u8, expected: &str) -> String {
    let mut text = String::new();
    while !text.contains(expected) {
        match timeout(TIMEOUT, socket.next()).await.expect(&text) {
            Some(Ok(Message::Binary(data))) if data[0] == channel => {
                text += &String::from_utf8_lossy(&data[1..]);
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => break,
            Some(Ok(_)) => {}
        }
    }
    text
}

async fn send(socket: &mut Socket, data: &[u8]) {
    socket.send(Message::binary(data.to_vec())).await.unwrap();
}

#[tokio::test]
async fn terminal_has_size_and_name_and_outlives_malformed_messages() {
    let Some(fixture) = pods() else { return };
    let path = "p/exec?stdin=1&stdout=true&tty=True&command=sh";
    let mut socket = open(&fixture, path).await.unwrap();
    for message in [
        &[][..],
        b"\x04nonsense",
        b"\x04{\"Width\":-1}",
        b"\x09x",
        b"\xff",
        b"\xff\x07",
    ] {
        send(&mut socket, message).await;
    }
    send(&mut socket, b"\x04{\"Width\":91,\"Height\":37}").await;
    send(&mut socket, b"\x00stty size; tty; exit 5\n").await;
    let output = read(&mut socket, 1, "/dev/pts/0\r\n").await;
    assert!(output.contains("37 91\r\n"), "{output}");
    let status = read(&mut socket, 3, "}]}").await;
    assert!(
        status.contains(r#"{"message":"5","reason":"ExitCode"}"#),
        "{status}"
    );
}

#[tokio::test]
async fn command_ends_with_its_client_and_with_its_container() {
    let Some(fixture) = pods() else { return };
    let count = || {
        let script = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o '[s]leep 4242' | wc -l";
        kubectl(&fixture, &["exec", "p", "--", "sh", "-c", script], "").1
    };
    let path = "p/exec?stdout=true&command=sh&command=-c&command=echo%20on;sleep%204242;true";
    let mut socket = open(&fixture, path).await.unwrap();
    assert_eq!(read(&mut socket, 1, "on\n").await, "on\n");
    // The shell and the sleep.
    assert_eq!(count(), "2\n");
    drop(socket);
    until(|| count() == "0\n").await;

    let mut command = open(&fixture, path).await.unwrap();
    let mut attached = open(&fixture, "p/attach?stdout=true").await.unwrap();
    assert_eq!(read(&mut command, 1, "on\n").await, "on\n");
    kubectl(&fixture, &["exec", "p", "--", "touch", "/tmp/end"], "");
    assert!(read(&mut command, 3, "}]}").await.contains(r#""137""#));
    assert_eq!(read(&mut attached, 1, "end\n").await, "end\n");
    assert!(read(&mut attached, 3, "}").await.contains("Success"));
    until(|| fixture.kubectl("get pod p -o jsonpath={.status.phase}") == "Succeeded").await;
    assert_eq!(open(&fixture, path).await.err(), Some(500));
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, wait).await.unwrap();
}

/// Waits for the server on port 8000, through a session with a second port that refuses.
async fn until_listening(fixture: &Fixture) {
    let forward = async {
        loop {
            let mut socket = open(fixture, "two/portforward?ports=8000,8001")
                .await
                .unwrap();
            send(&mut socket, b"\x00hello\n").await;
            if read(&mut socket, 0, "hello\n").await.ends_with("hello\n") {
                break;
            }
        }
    };
    timeout(TIMEOUT, forward).await.unwrap();
}

#[tokio::test]
async fn port_forward_carries_ports_and_reports_errors() {
    let Some(fixture) = pods() else { return };
    until_listening(&fixture).await;
    let mut socket = open(&fixture, "two/portforward?ports=8001").await.unwrap();
    let error = read(&mut socket, 1, "refused").await;
    assert!(error.contains("port 8001: "), "{error}");
    for (path, status) in [
        ("two/portforward", 400),
        ("two/portforward?ports=x", 400),
        ("two/exec?command=ls", 400),
        ("p/exec", 400),
        ("none/exec?command=ls", 404),
    ] {
        assert_eq!(open(&fixture, path).await.err(), Some(status), "{path}");
    }
}

/// Over SPDY in WebSocket messages, as by default since kubectl 1.31.
#[tokio::test]
async fn kubectl_forwards_ports_and_gives_up_at_a_refused_one() {
    let Some(fixture) = pods() else { return };
    until_listening(&fixture).await;
    let mut kubectl = fixture.standalone.command("kubectl");
    kubectl.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", "true");
    kubectl.args([
        "port-forward",
        "--address=127.0.0.1",
        "two",
        ":8000",
        ":8001",
    ]);
    kubectl.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut kubectl = kubectl.spawn().unwrap();
    let mut lines = BufReader::new(kubectl.stdout.take().unwrap()).lines();
    let mut local = || {
        let line = lines.next().unwrap().unwrap();
        let address = line.split(' ').nth(2).unwrap();
        address.parse::<SocketAddr>().unwrap()
    };
    let (open, refused) = (local(), local());
    timeout(TIMEOUT, join_all((0..8).map(|index| echo(open, index))))
        .await
        .unwrap();
    let mut stream = TcpStream::connect(refused).await.unwrap();
    assert_eq!(
        timeout(TIMEOUT, stream.read(&mut [0]))
            .await
            .unwrap()
            .unwrap(),
        0
    );
    let ended = kubectl.wait_with_output().unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{errors}");
    assert!(errors.contains("8001 to pod two, uid "), "{errors}");
    assert!(errors.contains("Connection refused"), "{errors}");
}

/// Sends a line, and reads it until the end.
async fn echo(address: SocketAddr, index: usize) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let line = format!("{index}{}\n", "x".repeat(100_000));
    stream.write_all(line.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer == line, "{index}: {} bytes", answer.len());
}

/// A command that prints without end to a client that does not read, messages beyond the limit, and
/// more sessions than are allowed.
#[tokio::test]
async fn sessions_are_bounded() {
    let Some(fixture) = pods() else { return };
    let path = "p/exec?stdin=true&stdout=true&command=cat";
    let mut huge = open(&fixture, path).await.unwrap();
    let _ = huge.send(Message::binary(vec![0; 2 << 20])).await;
    assert_eq!(read(&mut huge, 3, "}").await, "");
    let _endless = open(&fixture, "p/exec?stdout=true&command=yes")
        .await
        .unwrap();
    let mut sockets = Vec::new();
    let refused = loop {
        match open(&fixture, "p/attach?stdout=true").await {
            Ok(socket) => sockets.push(socket),
            Err(status) => break status,
        }
    };
    assert_eq!(refused, 429);
    assert!((250..=256).contains(&sockets.len()), "{}", sockets.len());
    let statm = format!("/proc/{}/statm", fixture.standalone.id());
    let statm = std::fs::read_to_string(statm).unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(pages < 50_000, "{pages} resident pages of 4 KiB");
}
