//! The user and the working directory (1.1, 1.2, 1.9), always in a private `/etc`.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::world::World;
use crate::client::Process;

fn output(world: &World, flags: &[&str]) -> (bool, String) {
    let output = world.command("w", flags).output().unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn the_user_is_made() {
    let Some(world) = World::private("openhands") else {
        return;
    };
    let process = world.serve("w");
    let read = |name: &str| fs::read_to_string(world.path("etc").join(name)).unwrap();
    assert!(read("passwd").ends_with("\nopenhands:x:1000:0::/home/openhands:/bin/bash\n"));
    assert!(read("group").contains("\nsudo:x:27:openhands\n"));
    assert!(read("shadow").contains("\nopenhands:!:"));
    assert_eq!(read("sudoers"), "%sudo ALL=(ALL) NOPASSWD:ALL\n");
    let home = world.path("home/openhands");
    assert_eq!(
        (
            fs::metadata(&home).unwrap().uid(),
            fs::metadata(home.join(".profile")).unwrap().uid()
        ),
        (1000, 1000)
    );
    for (command, content) in [
        (
            "id -un; id -u; id -gn; id -Gn",
            "openhands\n1000\nroot\nroot sudo",
        ),
        (
            "echo $HOME $USER $LOGNAME $SHELL",
            "/home/openhands openhands openhands /bin/bash",
        ),
        ("stat -c '%U %G %A' .", "openhands root drwxrwxr-x"),
        ("touch ~/x; stat -c '%U %G' ~/x", "openhands root"),
        (
            "cat /etc/shadow 2>&1 | tail -1",
            "cat: /etc/shadow: Permission denied",
        ),
        ("tty | grep -c /dev/pts", "1"),
    ] {
        let expected = content;
        assert_eq!(process.run(command)["content"], expected, "1.9 {command}");
    }
    drop(process);
    // A second start finds everything there.
    let again = world.serve("w");
    assert_eq!(again.run("whoami")["content"], "openhands");
    assert_eq!(read("sudoers").lines().count(), 1);
    assert_eq!(read("passwd").matches("openhands").count(), 2);
}

#[test]
fn a_uid_that_is_taken_is_fatal() {
    let Some(world) = World::private("openhands") else {
        return;
    };
    let (started, text) = output(&world, &["--user-id", "2"]);
    assert!(!started);
    assert!(
        text.contains(
            "Failed to create user openhands with UID 2. Output: useradd: UID 2 is not unique"
        ),
        "{text}"
    );
}

#[test]
fn an_existing_uid_wins() {
    let Some(world) = World::private("openhands") else {
        return;
    };
    let passwd = world.path("etc/passwd");
    let line = "openhands:x:4321:0::/home/openhands:/bin/bash\n";
    fs::write(&passwd, fs::read_to_string(&passwd).unwrap() + line).unwrap();
    let process = world.serve("w");
    assert_eq!(process.run("id -u; stat -c %u .")["content"], "4321\n4321");
}

#[test]
fn the_uid_asked_for_is_given() {
    let Some(world) = World::private("openhands") else {
        return;
    };
    let process = Process::start(&mut world.command("w", &["--user-id", "1234"]));
    assert_eq!(process.run("id -u")["content"], "1234");
}

#[test]
fn which_users_shells_change_to() {
    for (name, user, variables, runs_as) in [
        (
            "1.2 another user is not changed to",
            "builder",
            &[][..],
            "root",
        ),
        (
            "1.2 unless RUNTIME_USERNAME names it",
            "builder",
            &[("RUNTIME_USERNAME", "builder")][..],
            "builder",
        ),
        (
            "1.2 SU_TO_USER=false",
            "openhands",
            &[("SU_TO_USER", "false")][..],
            "root",
        ),
        (
            "1.2 SU_TO_USER=on",
            "openhands",
            &[("SU_TO_USER", "on")][..],
            "openhands",
        ),
        ("1.9 root", "root", &[][..], "root"),
    ] {
        let Some(world) = World::private(user) else {
            return;
        };
        let mut command = world.command("w", &[]);
        let process = Process::start(command.envs(variables.iter().copied()));
        assert_eq!(process.run("whoami")["content"], runs_as, "{name}");
    }
}

#[test]
fn a_developers_own_user_is_left_alone() {
    let Some(world) = World::private("developer") else {
        return;
    };
    fs::create_dir(world.path("w")).unwrap();
    let mut command = world.command("w", &[]);
    let process = Process::start(command.env("USER", "developer"));
    assert_eq!(
        process.run("stat -c %u .; grep -c developer /etc/passwd")["content"],
        "0\n0"
    );
}

#[test]
fn the_working_directory_is_handed_over_whole() {
    let Some(world) = World::private("openhands") else {
        return;
    };
    let inner = world.path("w/sub");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("file"), "").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", inner.join("link")).unwrap();
    fs::set_permissions(world.path("w"), fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = world.command("w", &[]);
    let process = Process::start(command.env("SANDBOX_GROUP_ID", "tape"));
    assert_eq!(
        process.run("stat -c '%n %U %G' . sub/* /etc/passwd; stat -c %a .")["content"],
        ". openhands tape\nsub/file openhands tape\nsub/link openhands tape\n/etc/passwd root root\n760"
    );
}

#[test]
fn bad_settings_end_before_anything_listens() {
    let world = World::plain();
    for (name, flags, variables, text) in [
        (
            "1.1 plugin",
            &["--plugins", "agent_skills", "nope"][..],
            &[][..],
            "Plugin nope not found",
        ),
        (
            "1.1 browser",
            &["--no-enable-browser", "--browsergym-eval-env", "x"][..],
            &[][..],
            "Browser environment is not enabled in config, but browsergym_eval_env is set",
        ),
        (
            "1.2 memory",
            &[][..],
            &[("RUNTIME_MAX_MEMORY_GB", "lots")][..],
            "invalid literal for int() with base 10",
        ),
    ] {
        let mut command = world.command("w", flags);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{name}"
        );
        assert!(stderr.contains(text), "{name}: {stderr}");
    }
}

#[test]
fn memory_is_limited_for_each_process() {
    let world = World::plain();
    let mut command = world.command(
        "w",
        &[
            "--plugins",
            "agent_skills",
            "jupyter",
            "vscode",
            "--no-enable-browser",
        ],
    );
    let process = Process::start(command.env("RUNTIME_MAX_MEMORY_GB", "1"));
    assert_eq!(
        process.run("ulimit -d; ulimit -Hd")["content"],
        "1048576\n1048576"
    );
    let answer = process.run("python3 -c 'x = bytearray(3 << 30)'");
    assert!(
        answer["content"].as_str().unwrap().ends_with("MemoryError"),
        "{answer}"
    );
    assert_eq!(
        process.run("python3 -c 'print(len(bytearray(1 << 20)))'")["content"],
        "1048576"
    );
}
