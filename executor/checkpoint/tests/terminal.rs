//! A shell whose terminal is held by a process outside of the tree.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;

use checkpoint::reserve_pids;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::namespaces::{Privileges, criu, run_phases};
use super::sandbox::{agree, dump_options, key, restore_options};

/// Sends a line to the shell and reads until the text appears.
fn type_line(master: &mut File, line: &str, expected: &str) {
    writeln!(master, "{line}").unwrap();
    let mut seen = String::new();
    while !seen.contains(expected) {
        let mut buffer = [0; 1024];
        let length = master.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        assert!(seen.len() < 64 * 1024 && length > 0, "{seen}");
    }
}

fn run_shell(folder: &Path, shell: &[&str]) {
    reserve_pids(1000).unwrap();
    let master: OwnedFd =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let open = || File::options().read(true).write(true).open(&name).unwrap();
    let mut shell = Command::new("setsid")
        .arg("--ctty")
        .args(shell)
        .stdin(open())
        .stdout(open())
        .stderr(open())
        .spawn()
        .unwrap();
    let mut master = File::from(master);
    type_line(
        &mut master,
        "mine=41; cd /usr; sleep 1000 & exec 5</dev/tty 6</dev/tty; echo be''gun",
        "begun",
    );
    let (root, archive) = (shell.id().cast_signed(), folder.join("archive"));
    criu(folder)
        .dump(root, &archive, dump_options(&key(), &mut agree))
        .unwrap_or_else(|error| panic!("{error}\n{}", error.log));
    shell.wait().unwrap();
    drop(master);

    let restored = criu(folder)
        .restore(&archive, restore_options(&key(), Vec::new(), &mut agree))
        .unwrap_or_else(|error| panic!("{error}\n{}", error.log));
    assert_eq!(restored.terminals.len(), 1);
    let mut master = File::from(restored.terminals[0].as_fd().try_clone_to_owned().unwrap());
    type_line(&mut master, "echo mi''ne $mine in $PWD", "mine 41 in /usr");
    type_line(&mut master, "jobs", "Running");
    type_line(&mut master, "kill %1; wait; echo en''ded; exit", "ended");
}

fn run_bash(folder: &Path) {
    run_shell(folder, &["bash", "--norc", "--noprofile", "-i"]);
}

/// It keeps `/dev/tty` open by itself.
fn run_dash(folder: &Path) {
    run_shell(folder, &["dash", "-i"]);
}

#[test]
fn shells_go_on_with_new_masters_of_their_terminals() {
    run_phases(
        "terminal::shells_go_on_with_new_masters_of_their_terminals",
        Privileges::UserNamespace,
        &[("bash", run_bash), ("dash", run_dash)],
    );
}
