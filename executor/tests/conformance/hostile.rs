//! Commands that want to do harm or just happen to: the server answers on, stays small, and leaves
//! nothing behind (1.11).

use rustix::process::Signal;
use serde_json::{Value, json};

use super::world::{World, worlds};
use crate::client::Process;

/// Without the limit of one second without output: these take what they take.
fn patiently(process: &Process, command: &str) -> Value {
    let args = json!({"command": command, "blocking": true});
    process.act(&json!({"action": "run", "args": args, "timeout": 600}))
}

/// A line of so many bytes, while others are answered.
fn one_long_line(process: &Process, bytes: usize) {
    let command = format!("head -c {bytes} /dev/zero | tr '\\0' x");
    std::thread::scope(|scope| {
        let printing = scope.spawn(|| patiently(process, &command));
        while !printing.is_finished() {
            assert_eq!(process.get("/alive").status, 200);
        }
        let answer = printing.join().unwrap();
        assert_eq!(answer["content"].as_str().unwrap().len(), 30_047);
    });
}

#[test]
fn hostile_commands() {
    for world in worlds() {
        let process = world.serve("hostile");
        one_long_line(&process, 128 << 20);
        assert!(process.peak() < 32 << 10, "{} KiB", process.peak());
        let large = format!("echo {} | wc -c", "x".repeat(10 << 20));
        assert_eq!(patiently(&process, &large)["content"], "10485761");
        let large = format!("cat << E | wc -l\n{}E", "line\n".repeat(1 << 20));
        assert_eq!(patiently(&process, &large)["content"], "1048576");
        assert_eq!(patiently(&process, "echo a\0b")["content"], "ab");
        let answer = patiently(&process, "head -c 3000000 /dev/urandom");
        assert_eq!(answer["extras"]["metadata"]["exit_code"], 0);
        assert_eq!(
            patiently(
                &process,
                "printf '\\033[999999999B\\033[4000000000C\\033[5;5r\\033[9L\\033[9M\\033[9@x'"
            )["content"],
            "x"
        );
        process.run_briefly("yes");
        assert_eq!(process.get("/alive").status, 200);
        assert_eq!(process.input("C-c")["extras"]["metadata"]["exit_code"], 130);
        patiently(
            &process,
            "for i in {1..100}; do mkdir d; cd d; done; ln -s . loop; ls loop/loop/loop >/dev/null",
        );
        assert_eq!(
            patiently(&process, "cd; echo still here")["content"],
            "still here"
        );
        let rss = process.get("/server_info").json()["resources"]["memory"]["rss"]
            .as_u64()
            .unwrap();
        assert!(rss < 200 << 20, "{rss}");
    }
}

/// As a user of its own: limits count all of a user's processes on the machine.
#[test]
fn a_fork_bomb_leaves_the_server_answering() {
    let Some(world) = World::private("openhands") else {
        return;
    };
    let mut command = world.command("bomb", &["--user-id", "61234"]);
    let process = Process::start(&mut command);
    process.run("ulimit -u 100");
    let bomb = process.run_briefly(":(){ :|:& };:");
    assert_eq!(bomb["observation"], "run");
    assert_eq!(process.get("/alive").status, 200);
    assert_eq!(process.get("/server_info").status, 200);
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
    assert_eq!(alive_with_uid(61234), 0);
}

fn alive_with_uid(uid: u32) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let statuses =
        processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok());
    let uid = format!("\nUid:\t{uid}\t");
    statuses
        .filter(|status| status.contains(&uid) && !status.contains("\nState:\tZ"))
        .count()
}

#[test]
fn nothing_outlives_the_server() {
    for world in worlds() {
        let process = world.serve("daemons");
        // The second one is nobody's descendant any more but the server's.
        let answer = process.run("sleep 1001 & echo $!; setsid -w sh -c 'sleep 1002 & echo $!'; (setsid sleep 1003 & echo $!)");
        let text = answer["content"].as_str().unwrap();
        let pids: Vec<&str> = text
            .lines()
            .filter(|line| line.parse::<u32>().is_ok())
            .collect();
        assert_eq!(pids.len(), 3, "{text}");
        process.signal(Signal::TERM);
        assert_eq!(process.wait().code(), Some(0));
        for pid in pids {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            assert!(
                stat.is_ok_and(|stat| stat.contains(") Z "))
                    || !std::path::Path::new("/proc").join(pid).exists()
            );
        }
    }
}

#[test]
fn orphans_are_waited_for() {
    let process = World::plain().serve("orphans");
    let answer = process
        .run("sh -c 'sleep 0 & sleep 0 & echo $PPID'; (sleep 0.01 &); (true &); ps -o ppid= -p $$");
    let server = process.child.id().to_string();
    assert!(
        answer["content"].as_str().unwrap().contains(&server),
        "{answer}"
    );
    // Ends when none is left.
    let wait = format!("while ps -o stat= --ppid {server} | grep -q Z; do :; done; echo none");
    assert_eq!(process.run(&wait)["content"], "none");
}
