//! User and working directory (sections 1.1, 1.2 and 1.9), in a private `/etc`.

use std::fs;
use std::path::Path;

use super::environment::{CaseEnvironment, in_mount_namespace};
use crate::client::{BINARY, KEY, TestProcess, copy_program, mode_and_owner, set_mode, wait_until};
use crate::transfer::fields;

#[test]
fn missing_user_is_created() {
    let Some(environment) = CaseEnvironment::private("openhands") else {
        return;
    };
    let process = environment.serve("w");
    let read = |name: &str| fs::read_to_string(environment.path("etc").join(name)).unwrap();
    assert!(read("passwd").ends_with("\nopenhands:x:1000:0::/home/openhands:/bin/bash\n"));
    assert!(read("group").contains("\nsudo:x:27:openhands\n"));
    assert!(read("shadow").contains("\nopenhands:!:"));
    assert_eq!(read("sudoers"), "%sudo ALL=(ALL) NOPASSWD:ALL\n");
    let home = environment.path("home/openhands");
    for made in [home.join(".profile"), home] {
        assert_eq!(mode_and_owner(made).1, 1000);
    }
    for row in [
        "id -un; id -u; id -gn; id -Gn | openhands\n1000\nroot\nroot sudo",
        "echo $HOME $USER $LOGNAME $SHELL | /home/openhands openhands openhands /bin/bash",
        "stat -c '%U %G %A' . | openhands root drwxrwxr-x",
        "touch ~/x; stat -c '%U %G' ~/x | openhands root",
        "cat /etc/shadow 2>&1 | cat: /etc/shadow: Permission denied",
        "[[ $(tty) = /dev/pts/* ]] && echo terminal | terminal",
    ] {
        let [command, expected] = fields(row);
        assert_eq!(process.output(command), expected, "1.9 {command}");
    }
    drop(process);
    // A second start changes nothing.
    let again = environment.serve("w");
    assert_eq!(again.output("whoami"), "openhands");
    assert_eq!(read("sudoers").lines().count(), 1);
    assert_eq!(read("passwd").matches("openhands").count(), 2);
}

#[test]
fn start_fails_when_uid_is_in_use() {
    let Some(environment) = CaseEnvironment::private("openhands") else {
        return;
    };
    let output = environment.command("w", &["--user-id", "2"]).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let expected =
        "Failed to create user openhands with UID 2. Output: useradd: UID 2 is not unique";
    assert!(!output.status.success(), "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn existing_user_keeps_its_uid() {
    let Some(environment) = CaseEnvironment::private("openhands") else {
        return;
    };
    let passwd = environment.path("etc/passwd");
    let line = "openhands:x:4321:0::/home/openhands:/bin/bash\n";
    fs::write(&passwd, fs::read_to_string(&passwd).unwrap() + line).unwrap();
    let process = environment.serve("w");
    assert_eq!(process.output("id -u; stat -c %u ."), "4321\n4321");
}

#[test]
fn missing_user_gets_requested_uid() {
    let Some(environment) = CaseEnvironment::private("openhands") else {
        return;
    };
    let process = TestProcess::start(&mut environment.command("w", &["--user-id", "1234"]));
    assert_eq!(process.output("id -u"), "1234");
}

#[test]
fn shells_change_to_allowed_users_only() {
    for row in [
        "1.2 another user is not changed to | builder |  | root",
        "1.2 unless RUNTIME_USERNAME names it | builder | RUNTIME_USERNAME=builder | builder",
        "1.2 SU_TO_USER=false | openhands | SU_TO_USER=false | root",
        "1.2 SU_TO_USER=on | openhands | SU_TO_USER=on | openhands",
        "1.9 root | root |  | root",
    ] {
        let [name, user, variable, runs_as] = fields(row);
        let Some(environment) = CaseEnvironment::private(user) else {
            return;
        };
        let mut command = environment.command("w", &[]);
        let process = TestProcess::start(command.envs(variable.split_once('=')));
        assert_eq!(process.output("whoami"), runs_as, "{name}");
    }
}

#[test]
fn nothing_is_set_up_for_user_of_the_server() {
    let Some(environment) = CaseEnvironment::private("developer") else {
        return;
    };
    fs::create_dir(environment.path("w")).unwrap();
    let mut command = environment.command("w", &[]);
    let process = TestProcess::start(command.env("USER", "developer"));
    assert_eq!(
        process.output("stat -c %u .; grep -c developer /etc/passwd"),
        "0\n0"
    );
}

#[test]
fn working_directory_is_given_to_user_and_group() {
    let Some(environment) = CaseEnvironment::private("openhands") else {
        return;
    };
    let inner = environment.path("w/sub");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("file"), "").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", inner.join("link")).unwrap();
    set_mode(environment.path("w"), 0o700);
    let mut command = environment.command("w", &[]);
    let process = TestProcess::start(command.env("SANDBOX_GROUP_ID", "tape"));
    assert_eq!(
        process.output("stat -c '%n %U %G' . sub/* /etc/passwd; stat -c %a ."),
        ". openhands tape\nsub/file openhands tape\nsub/link openhands tape\n/etc/passwd root root\n760"
    );
}

#[test]
fn start_fails_with_invalid_settings() {
    let environment = CaseEnvironment::plain();
    for row in [
        "1.1 plugin | --plugins agent_skills nope |  | Plugin nope not found",
        "1.1 browser | --no-enable-browser --browsergym-eval-env x |  | \
         Browser environment is not enabled in config, but browsergym_eval_env is set",
        "1.1 benchmark | --enable-browser --browsergym-eval-env x |  | --browsergym-eval-env is not supported",
        "1.2 memory |  | lots | invalid literal for int() with base 10",
        "1.1 relative directory | --working-dir relative |  | must be absolute",
        "1.9 user name | --username bad:name |  | invalid user name 'bad:name'",
    ] {
        let [name, flags, memory, text] = fields(row);
        let mut command = environment.command("w", &[]);
        command.args(flags.split_whitespace());
        if !memory.is_empty() {
            command.env("RUNTIME_MAX_MEMORY_GB", memory);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{name}"
        );
        assert!(stderr.contains(text), "{name}: {stderr}");
    }
}

const CHANGE_ROOT: &str = "cd \"$1\" && shift
    for name in usr bin lib lib64 etc proc dev tmp; do
        [ ! -e /$name ] || { mkdir -p $name && mount --rbind /$name $name || exit; }
    done
    exec chroot . \"$@\"";

#[test]
fn shells_have_the_python_environment_of_the_image() {
    let Some(environment) = CaseEnvironment::private("root") else {
        return;
    };
    let image = environment.path("image");
    for name in ["micromamba/envs/openhands", "poetry/venv"] {
        let bin = image.join("openhands").join(name).join("bin");
        fs::create_dir_all(&bin).unwrap();
        for program in ["python", "pip"] {
            let path = bin.join(program);
            // The first argument of a kernel is an option.
            let record = "[ $# = 0 ] || echo $PYTHONPATH $(ulimit -d) > /kernel";
            fs::write(
                &path,
                format!("#!/bin/sh\n{record}\necho {name} {program}\n"),
            )
            .unwrap();
            set_mode(path, 0o755);
        }
    }
    fs::create_dir(image.join("openhands/code")).unwrap();
    copy_program(Path::new(BINARY), &image.join("serve"));
    let mut command = in_mount_namespace(CHANGE_ROOT);
    command
        .arg(&image)
        .args(["/serve", "serve", "0", "--username", "root"])
        .args(["--plugins", "jupyter"]);
    command
        .env("RUNTIME_MAX_MEMORY_GB", "1")
        .env("SESSION_API_KEY", KEY)
        .env("SANDBOX_BIND_ADDRESS", "127.0.0.1");
    let process = TestProcess::start(&mut command);
    let path = "/openhands/poetry/venv/bin:/openhands/micromamba/envs/openhands/bin";
    assert_eq!(
        process.output("pip; echo $VIRTUAL_ENV $CONDA_PREFIX; echo $PATH | cut -d: -f1,2"),
        format!(
            "poetry/venv pip\n/openhands/poetry/venv /openhands/micromamba/envs/openhands\n{path}"
        ),
        "1.2 the environment of an image of the Python server"
    );
    let kernel = || fs::read_to_string(image.join("kernel")).unwrap_or_default();
    wait_until(|| kernel().ends_with('\n'));
    assert_eq!(
        kernel(),
        "/openhands/code unlimited\n",
        "1.2 that of its kernel"
    );
}

#[test]
fn memory_setting_limits_no_process() {
    let environment = CaseEnvironment::plain();
    let flags = "--plugins agent_skills jupyter vscode --no-enable-browser";
    let mut command = environment.command("w", &flags.split(' ').collect::<Vec<_>>());
    let process = TestProcess::start(command.env("RUNTIME_MAX_MEMORY_GB", "1"));
    // Address sanitizers reserve terabytes; the container limits the memory in use.
    let limits = process.run("ulimit -d; ulimit -v; ulimit -Hd");
    assert_eq!(
        limits["content"], "unlimited\nunlimited\nunlimited",
        "1.2 memory is not limited"
    );
}
