//! Level `Memory`: processes of a command go on under the supervisor of another container.

mod crashes;
mod hanging_volume;

use std::fs;
use std::path::Path;

use crds::contract::control::{Init, Probe};
use crds::contract::persistence::PersistenceLevel;
use crds::contract::prestart::{Handover, Prestart};
use serde_json::json;

use super::containers::{Container, Volumes};
use super::{kept, save, shell, shell_of};
use crate::client::set_mode;
use crate::supervise::{ready, start};

/// Answers to the file `ask` with a number that is in memory only, and the count of the answers,
/// while its background job lives.
const COUNTER: &str = r#"
number=$(od -An -N8 -tu8 /dev/urandom | tr -d ' '); count=0
sleep 1000 & job=$!
echo "up $number"
while :; do
    if [ -e "$WORK/ask" ]; then
        rm "$WORK/ask"; count=$((count + 1))
        kill -0 $job && echo "$number $count"
    fi
    sleep 0.01
done"#;

fn counter(volumes: &Volumes) -> Init {
    let mut init = shell(COUNTER);
    init.command[0] = "bash".into();
    let work = volumes.work().to_str().unwrap().to_owned();
    init.environment.insert("WORK".into(), work);
    init
}

fn ask(volumes: &Volumes, container: &mut Container) -> String {
    fs::write(volumes.work().join("ask"), "").unwrap();
    container.line()
}

/// Starts the counter, asks it once, and saves it. Returns its number.
fn saved_counter(volumes: &Volumes) -> String {
    let mut container = volumes.run(&counter(volumes));
    let line = container.line();
    let number = line.strip_prefix("up ").unwrap().to_owned();
    assert_eq!(ask(volumes, &mut container), format!("{number} 1"));
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    assert!(kept["bytes"].as_u64().unwrap() > 0 && kept["reason"].is_null());
    container.end();
    number
}

/// Starts a container that cannot let the processes go on, and returns its reason. The command has
/// started anew.
fn refused(volumes: &Volumes, init: &Init, number: &str) -> String {
    let mut container = volumes.run(init);
    let line = container.line();
    assert_ne!(line.strip_prefix("up ").unwrap(), number);
    let restored = container.restored();
    assert_eq!(restored["level"], "Root", "{restored}");
    assert!(!volumes.saved("archive").exists());
    let reason = restored["reason"].as_str().unwrap();
    let reason = reason.strip_prefix("processes did not go on: ").unwrap();
    reason.to_owned()
}

#[test]
fn processes_go_on_once_in_another_container() {
    let Some(volumes) = Volumes::new("processes_go_on_once_in_another_container") else {
        return;
    };
    let number = saved_counter(&volumes);
    let mut container = volumes.run(&counter(&volumes));
    assert_eq!(ask(&volumes, &mut container), format!("{number} 2"));
    assert_eq!(container.restored()["level"], "Memory");
    let id = container.processes_id();
    assert!(!volumes.saved("archive").exists());
    // A second time, by the same supervisor that has restored it.
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();
    let archive = fs::read(volumes.saved("archive")).unwrap();
    let meta = fs::read(volumes.saved("meta.json")).unwrap();
    let mut container = volumes.run(&counter(&volumes));
    assert_eq!(ask(&volumes, &mut container), format!("{number} 3"));
    assert_eq!(container.processes_id(), id);
    // An eviction saves them as well, once the command is ready.
    ready(container.address, 20);
    assert_eq!(container.stop(), 143);
    let mut container = volumes.run(&counter(&volumes));
    assert_eq!(ask(&volumes, &mut container), format!("{number} 4"));
    container.kill();
    // Without a save nothing is left of them, even if someone had put the files back.
    fs::write(volumes.saved("archive"), archive).unwrap();
    fs::write(volumes.saved("meta.json"), meta).unwrap();
    let mut container = volumes.run(&counter(&volumes));
    assert_ne!(container.line(), format!("up {number}"));
    assert_ne!(container.processes_id(), id);
    let reason = container.restored()["reason"].as_str().unwrap().to_owned();
    assert!(
        reason.ends_with("an earlier start has used them, and they go on once only"),
        "{reason}"
    );
}

#[test]
fn full_volume_keeps_the_files_and_says_so() {
    let Some(volumes) = Volumes::new("full_volume_keeps_the_files_and_says_so") else {
        return;
    };
    let mut init = shell("");
    let script = "import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('stopped', flush=True), sys.exit(0)))
data = os.urandom(8 << 20)
print('up', flush=True)
while True: time.sleep(1)
";
    init.command = ["python3", "-c", script].map(Into::into).to_vec();
    let mut container = volumes.run_with_small_store(&init);
    assert_eq!(container.line(), "up");
    let kept = kept(&save(&container));
    // The command went on after the attempt, and was stopped as for a pause.
    assert_eq!(container.line(), "stopped");
    assert_eq!(kept["level"], "Root", "{kept}");
    let reason = kept["reason"].as_str().unwrap();
    assert!(reason.starts_with("processes are not kept: "), "{reason}");
    assert!(reason.contains("No space left on device"), "{reason}");
    container.end();
}

#[test]
fn processes_do_not_go_on_after_a_start_of_a_lower_level() {
    let test = "processes_do_not_go_on_after_a_start_of_a_lower_level";
    let Some(volumes) = Volumes::new(test) else {
        return;
    };
    let number = saved_counter(&volumes);
    let mut container = volumes.run_at(PersistenceLevel::Root, &counter(&volumes));
    container.line();
    assert_eq!(kept(&save(&container))["level"], "Root");
    container.end();
    let mut container = volumes.run(&counter(&volumes));
    assert_ne!(container.line(), format!("up {number}"));
    let restored = container.restored();
    assert_eq!(restored["level"], "Root", "{restored}");
    let reason = "processes did not go on: they were not saved";
    assert_eq!(restored["reason"], reason);
}

#[test]
fn processes_do_not_go_on_in_other_surroundings() {
    let Some(volumes) = Volumes::new("processes_do_not_go_on_in_other_surroundings") else {
        return;
    };
    let number = saved_counter(&volumes);
    let other = Init {
        state: shell_of("", "sha256:two").state,
        ..counter(&volumes)
    };
    assert_eq!(refused(&volumes, &other, &number), "the image has changed");

    let number = saved_counter(&volumes);
    let mut changed = counter(&volumes);
    changed.environment.insert("KEY".into(), "new".into());
    let reason = refused(&volumes, &changed, &number);
    assert_eq!(reason, "the command or its environment has changed");
    // The first refusal was final.
    let reason = refused(&volumes, &counter(&volumes), &number);
    assert_eq!(reason, "they were not saved");

    let number = saved_counter(&volumes);
    let path = volumes.saved("archive");
    let mut archive = fs::read(&path).unwrap();
    let middle = archive.len() / 2;
    archive[middle] ^= 1;
    fs::write(&path, archive).unwrap();
    let reason = refused(&volumes, &counter(&volumes), &number);
    assert!(reason.contains("cannot be read"), "{reason}");

    let number = saved_counter(&volumes);
    let path = volumes.saved("meta.json");
    let meta = fs::read_to_string(&path).unwrap();
    fs::write(&path, meta.replacen('{', "{ ", 1)).unwrap();
    let reason = refused(&volumes, &counter(&volumes), &number);
    assert!(reason.contains("cannot be read"), "{reason}");
}

#[test]
fn processes_of_a_newer_format_are_set_aside_and_never_go_on() {
    let test = "processes_of_a_newer_format_are_set_aside_and_never_go_on";
    let Some(volumes) = Volumes::new(test) else {
        return;
    };
    let renumber = |folder: &str, from: &str, to: &str| {
        let path = volumes.store().join("root").join(folder).join("meta.json");
        let meta = fs::read_to_string(&path).unwrap();
        assert!(meta.contains(from), "{meta}");
        fs::write(&path, meta.replace(from, to)).unwrap();
    };
    let (known, newer) = (r#""version":1"#, r#""version":2"#);
    let aside = volumes.store().join("root/memory.newer");
    let number = saved_counter(&volumes);
    renumber("memory", known, newer);
    let expected = "they have version 2, which this supervisor does not read: they are set aside, \
                    and never go on";
    assert_eq!(refused(&volumes, &counter(&volumes), &number), expected);
    // Saves and starts of this supervisor leave them.
    let second = saved_counter(&volumes);
    assert!(aside.join("archive").exists());
    let mut container = volumes.run(&counter(&volumes));
    assert_eq!(ask(&volumes, &mut container), format!("{second} 2"));
    container.kill();
    let mut container = volumes.run_at(PersistenceLevel::Root, &counter(&volumes));
    container.line();
    container.kill();
    assert!(aside.join("archive").exists());
    // They are marked, even if they were put back.
    renumber("memory.newer", newer, known);
    let _ = fs::remove_dir_all(volumes.saved(""));
    fs::rename(&aside, volumes.saved("")).unwrap();
    let reason = refused(&volumes, &counter(&volumes), &number);
    assert_eq!(
        reason,
        "an earlier start has used them, and they go on once only"
    );
    // A start at a lower level leaves them, too.
    saved_counter(&volumes);
    renumber("memory", known, newer);
    let mut container = volumes.run_at(PersistenceLevel::Root, &counter(&volumes));
    container.line();
    container.kill();
    assert!(aside.join("archive").exists() && aside.join("used").exists());
}

#[test]
fn command_that_cannot_be_saved_is_stopped_and_its_files_are_kept() {
    let test = "command_that_cannot_be_saved_is_stopped_and_its_files_are_kept";
    let Some(volumes) = Volumes::new(test) else {
        return;
    };
    // Strict mode of seccomp, in a child; the command goes on after the attempt.
    let script = "import ctypes, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('stopped', flush=True), sys.exit(0)))
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)
    # One instruction: allow.
    program = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 255, 127]))
    class Filter(ctypes.Structure):
        _fields_ = [('length', ctypes.c_ushort), ('program', ctypes.c_void_p)]
    filter = Filter(1, ctypes.addressof(program))
    print('filter', libc.prctl(22, 2, ctypes.byref(filter)), flush=True)
    time.sleep(1000)
while True: time.sleep(1)
";
    let mut init = shell("");
    init.command = ["python3", "-c", script].map(Into::into).to_vec();
    let mut container = volumes.run(&init);
    assert_eq!(container.line(), "filter 0");
    let kept = kept(&save(&container));
    assert_eq!(container.line(), "stopped");
    assert_eq!(kept["level"], "Root", "{kept}");
    let reason = "processes are not kept: a process runs under a seccomp filter";
    assert_eq!(kept["reason"], reason);
    container.end();
    assert!(!volumes.saved("archive").exists());

    // At an eviction, too.
    let mut container = volumes.run(&init);
    assert_eq!(container.line(), "filter 0");
    ready(container.address, 20);
    assert_eq!(container.stop(), 0);

    // Without the program.
    let mut container = volumes.run_with(&counter(&volumes), Path::new("/nowhere/criu"));
    container.line();
    let kept = super::kept(&save(&container));
    assert_eq!(kept["level"], "Root", "{kept}");
    let reason = "processes are not kept: the program criu is not in the executor image";
    assert_eq!(kept["reason"], reason);
    container.end();
}

#[test]
fn processes_of_another_user_go_on_without_a_user_namespace() {
    let test = "processes_of_another_user_go_on_without_a_user_namespace";
    let Some(volumes) = Volumes::of_host_users(test) else {
        return;
    };
    set_mode(volumes.work(), 0o777);
    let mut init = counter(&volumes);
    let user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"];
    let words = user.map(str::to_owned).into_iter();
    init.command = words.chain(init.command).collect();
    let mut container = volumes.run(&init);
    let number = container.line();
    let number = number.strip_prefix("up ").unwrap();
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();
    let mut container = volumes.run(&init);
    assert_eq!(container.restored()["level"], "Memory");
    assert_eq!(ask(&volumes, &mut container), format!("{number} 1"));
}

#[test]
fn prestarted_program_is_saved_and_does_not_hinder_a_restore() {
    let test = "prestarted_program_is_saved_and_does_not_hinder_a_restore";
    let Some(volumes) = Volumes::new(test) else {
        return;
    };
    let init = counter(&volumes);
    let prestart = Prestart {
        handover: Handover::Command,
        command: init.command.clone(),
        working_dir: init.working_dir.clone(),
        environment: init.environment.clone(),
        probe: Probe {
            port: None,
            path: None,
        },
    };
    let mut container = volumes.prestarted(&prestart);
    let number = container.line();
    let number = number.strip_prefix("up ").unwrap();
    start(&container, &init);
    let report = ready(container.address, 60).json();
    assert_eq!(
        (&report["state"], &report["prestarted"]),
        (&json!("ready"), &json!(true))
    );
    assert_eq!(ask(&volumes, &mut container), format!("{number} 1"));
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();

    let mut container = volumes.prestarted(&prestart);
    start(&container, &init);
    assert_eq!(container.restored()["level"], "Memory");
    let report = ready(container.address, 0).json();
    assert_eq!(report["prestarted"], false);
    assert_eq!(ask(&volumes, &mut container), format!("{number} 2"));
}
