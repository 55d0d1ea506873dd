//! A session with every plugin, as a client of V0 has it: the same wherever its sandbox runs. Its image is
//! that of `hack/image sandbox`, which has a Jupyter kernel, the library of MCP and a stand-in for VS Code.

use std::process::Command;
use std::time::Duration;

use client::Edit;
use serde_json::{Value, json};

use crate::binaries::root;
use crate::clients::http_client::{HttpClient, JsonReply};
use crate::clients::v0::v0_command;
use crate::session::Session;

/// The image, see `hack/image`.
pub const IMAGE: &str = "localhost/sandbox-test:1";

const TOOLS: &str = include_str!("../../executor/tests/mcp/server.py");
const CLIENT: &str = "executor/tests/mcp/client.py";
/// A curve as a PNG, drawn and displayed with nothing but what a kernel has.
const PLOT: &str = r"
import math, struct, zlib
from IPython.display import Image
rows = [bytes(255 * (abs(24 + 20 * math.sin(x / 8) - y) > 1) for x in range(64)) for y in range(48)]
chunk = lambda kind, data: struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
png = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 64, 48, 8, 0, 0, 0, 0))
png += chunk(b'IDAT', zlib.compress(b''.join(b'\0' + row for row in rows))) + chunk(b'IEND', b'')
open('plot.png', 'wb').write(png)
Image(png)";

/// One sandbox with all plugins, and who its user is.
#[derive(Debug)]
pub struct PluginSession {
    session: Session,
    username: &'static str,
}

/// Arguments of the V0 client's command that describe the sandbox.
fn body(session: &str, username: &str) -> Value {
    let command = v0_command("--plugins agent_skills jupyter vscode", username);
    json!({
        "session_id": session, "image": IMAGE, "working_dir": "/openhands/code/", "resource_factor": 2,
        "environment": {"GREETING": "hello"}, "command": command,
    })
}

impl PluginSession {
    /// Starts it through the runtime API at `base`, and waits until it and its plugins are ready.
    pub async fn start(base: &str, api_key: &str, username: &'static str) -> Self {
        let body = body(&format!("plugins-{username}"), username);
        let session = Session::start(base, api_key, &body).await;
        let expected = json!({"agent_skills": "ready", "jupyter": "ready", "vscode": "ready"});
        until(|| async {
            let info = session.sandbox.server_info().await.expect("an answer");
            let plugins = json!(info.plugins);
            (plugins == expected).then_some(()).ok_or(plugins)
        })
        .await;
        Self { session, username }
    }

    /// Returns the output of a command.
    pub async fn run(&self, command: &str) -> String {
        self.session.run(command).await
    }

    /// Returns the output of a cell.
    pub async fn cell(&self, code: &str) -> String {
        self.session.run_python(code).await
    }

    /// Ends the sandbox.
    pub async fn stop(self) {
        self.session.stop().await;
    }

    /// Uses everything once.
    pub async fn uses_all(&self) {
        self.shell_and_cells().await;
        self.check_same_user_everywhere().await;
        self.tools().await;
        self.vscode().await;
    }

    async fn shell_and_cells(&self) {
        // The first requests of a client.
        let set = "import os\nos.environ[\"MOOD\"] = \"fine\"\n\n";
        self.cell(set).await;
        self.run("export MOOD=\"fine\"").await;
        assert_eq!(self.run("echo $GREETING $MOOD").await, "hello fine");
        let shown = "print(os.environ['GREETING'], os.environ['MOOD'])";
        assert_eq!(self.cell(shown).await, "hello fine");
        // By default an observation of a cell ends with notes about the kernel.
        let plot = self.session.act("run_ipython", json!({"code": PLOT})).await;
        let expected = "<IPython.core.display.Image object>\n\
            [Jupyter current working directory: /workspace]\n\
            [Jupyter Python interpreter: /usr/bin/python3]";
        assert_eq!(plot["content"], expected);
        let file = self.run("base64 -w0 plot.png").await;
        let urls = json!([format!("data:image/png;base64,{file}")]);
        assert_eq!(plot["extras"]["image_urls"], urls);
    }

    /// Shell, kernel and editors are the same user with the same groups, environment and directory.
    async fn check_same_user_everywhere(&self) {
        self.run("mkdir -p below && cd below").await;
        for (code, command) in [
            (
                "print(*os.getresuid(), *os.getresgid(), *sorted(os.getgroups()))",
                "awk '/^Uid|^Gid/{printf \"%s %s %s \", $2, $3, $4} /^Groups/{$1=\"\"; print}' /proc/self/status | tr -s ' '",
            ),
            ("import getpass; print(getpass.getuser())", "id -un"),
            ("print(os.getcwd())", "pwd"),
            (
                "print(*[os.environ.get(name, '') for name in ('HOME', 'USER', 'LOGNAME', 'SHELL', 'PATH', 'LANG', 'GREETING')])",
                "echo \"$HOME $USER $LOGNAME $SHELL $PATH $LANG $GREETING\"",
            ),
            (
                "_ = os.umask(0o22); os.umask(_); print(f'{_:04o}')",
                "umask",
            ),
        ] {
            let (cell, shell) = (self.cell(code).await, self.run(command).await);
            assert_eq!(cell.trim(), shell.trim(), "{}: {code}", self.username);
        }
        assert_eq!(self.run("id -un").await, self.username);
        // Every file belongs to the sandbox user.
        self.run("touch shell").await;
        self.cell("open('cell', 'w').close()").await;
        let skill = "file_editor('create', '/workspace/below/skill', file_text='')";
        self.cell(skill).await;
        let create = Edit::Create {
            text: String::new(),
        };
        let edited = self
            .session
            .sandbox
            .edit("/workspace/below/action", &create);
        edited.await.expect("an edit");
        let count = "stat -c '%U %G' shell cell skill action | uniq -c";
        let owners = self.run(count).await;
        let (count, owner) = owners.trim().split_once(' ').expect("a count");
        assert!(count == "4" && owner.starts_with(self.username), "{owners}");
        self.run("cd ..").await;
    }

    /// A tool server in the sandbox, and a client of others outside.
    async fn tools(&self) {
        self.session.write("/workspace/tools.py", TOOLS).await;
        let servers = json!([{"name": "t", "command": "python3", "args": ["/workspace/tools.py"]}]);
        let url = format!("{}/update_mcp_server", self.session.url);
        let answer = self.session.wire.post(&url, &servers).await;
        let expected = json!({"detail": "MCP server updated successfully", "router_error_log": ""});
        assert_eq!(answer.body, expected);
        for (transport, path) in [("sse", "/mcp/sse"), ("streamable-http", "/mcp")] {
            let mut client = tokio::process::Command::new(python());
            client.arg(root().join(CLIENT));
            client.args([transport, &format!("{}{path}", self.session.url)]);
            client.env("SESSION_API_KEY", &self.session.key);
            let output = client.output().await.expect("a client");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("\nE:hi False\n"), "{transport}: {output:?}");
        }
    }

    /// The link that a client shows its user: by the name of the sandbox, and by path.
    async fn vscode(&self) {
        let Session {
            sandbox,
            base,
            id,
            url,
            ..
        } = &self.session;
        let address = sandbox.vscode().await.expect("an answer").expect("VS Code");
        let (_, token) = address.url.split_once("?tkn=").expect("a token");
        // It is told where it is reached if that is below a path.
        let path = format!("/{id}/vscode");
        let prefix = if url.ends_with("/runtime") {
            &*path
        } else {
            ""
        };
        let host = format!("vscode-{id}.{}", base.trim_start_matches("http://"));
        let named = HttpClient::unpooled(&[("Host", &host)]);
        let anonymous = HttpClient::unpooled(&[("Accept", "*/*")]);
        for (client, link) in [
            (&named, format!("{base}/")),
            (&anonymous, format!("{base}{path}/")),
        ] {
            let open = async |token: &str| {
                let page = format!("{link}?tkn={token}&folder=/workspace");
                client.get(&page).await
            };
            let page: Value = until(|| async {
                match open(token).await {
                    JsonReply { status: 200, body } => Ok(body),
                    // It has been started, and begins to listen.
                    JsonReply { status: 502, body } => Err(body),
                    other => panic!("{link}: {other:?}"),
                }
            })
            .await;
            let expected = json!({"user": self.username, "directory": "/workspace", "base": prefix, "path": "/"});
            assert_eq!(page, expected, "{link}");
            assert_eq!(open("other").await.status, 403, "{link}");
        }
    }
}

/// Tries every tenth of a second, for two minutes.
async fn until<T, F: Future<Output = Result<T, Value>>>(mut look: impl FnMut() -> F) -> T {
    let mut last = Value::Null;
    for _ in 0..1200 {
        match look().await {
            Ok(found) => return found,
            Err(seen) => last = seen,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it does not come to that: {last}");
}

/// A Python with the libraries of MCP and Playwright.
pub(crate) fn python() -> String {
    let output = Command::new(root().join("hack/python-kernel/install"))
        .output()
        .expect("a script");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
