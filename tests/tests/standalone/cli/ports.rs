//! `sandbox port`: ports of this machine that lead into a sandbox.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::Cli;

/// A call of `sandbox port` that goes on, and the address that it forwards.
struct Forward {
    process: Child,
    address: String,
}

impl Forward {
    fn start(cli: &Cli, name: &str, port: u16) -> Self {
        let mut command = cli.command(&["port", name, &format!("{port}:0")]);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        errors.read_line(&mut line).unwrap();
        // The rest is not a line too many for the pipe.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let address = line.split_whitespace().nth(1);
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { process, address }
    }

    /// The page behind it, as soon as its server runs.
    fn page(&self) -> String {
        let url = format!("http://{}/page", self.address);
        let retries = ["--retry", "30", "--retry-all-errors", "--retry-delay", "1"];
        let output = Command::new("curl")
            .args(["-sS", "--fail"])
            .args(retries)
            .arg(url)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(cli: &Cli, name: &str, text: &str) {
    let script = format!(
        "echo {text} > page; setsid -f python3 -m http.server 8123 --bind 127.0.0.1 >log 2>&1 </dev/null"
    );
    cli.succeeds(&["exec", name, "--", "sh", "-c", &script]);
}

#[test]
fn forwarded_port_leads_to_the_sandbox_again_after_a_pause() {
    let Some(cli) = Cli::with_sandbox("served") else {
        return;
    };
    let forward = Forward::start(&cli, "served", 8123);
    serve(&cli, "served", "before");
    assert_eq!(forward.page(), "before\n");
    cli.succeeds(&["pause", "served"]);
    cli.succeeds(&["resume", "served"]);
    // Without its processes: a pause of this level keeps files.
    serve(&cli, "served", "after");
    assert_eq!(forward.page(), "after\n");
}
