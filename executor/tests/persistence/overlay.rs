//! Mechanism `overlay`, with host users and in a user namespace.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crds::contract::persistence::RootMechanism::Overlay;
use tempfile::TempDir;

use super::volume::{Namespaces, Volume};
use super::{end, kept, kill, restored, save, shell, shell_of};
use crate::client::TestProcess;
use crate::supervise::start;

const SHOW: &str = "cat /etc/new /etc/of-image; ls /etc/removed 2>/dev/null
    cat /srv/conf/token; echo end; exec sleep 1000";

/// Namespaces that this machine allows.
fn namespaces(test: &str) -> Vec<Namespaces> {
    let user = ["--user", "--map-root-user", "--mount", "true"];
    let allowed = Command::new("unshare").args(user).status();
    if allowed.is_ok_and(|status| status.success()) {
        return vec![Namespaces::Mount, Namespaces::UserAndMount];
    }
    eprintln!("SKIPPED {test}: user namespaces");
    vec![Namespaces::Mount]
}

#[test]
fn overlay_keeps_the_root_and_hides_the_store() {
    let test = "overlay_keeps_the_root_and_hides_the_store";
    let Some(first) = Volume::new(test) else {
        return;
    };
    drop(first);
    for namespaces in namespaces(test) {
        let Some(volume) = Volume::new(test) else {
            return;
        };
        let run = |root: &TempDir, script: &str, image: &str| {
            let mut command = volume.command(root, Overlay, namespaces);
            let process = TestProcess::start(&mut command);
            start(&process, &shell_of(script, image));
            process
        };
        let root = Volume::root();
        let script = "echo 1 > /etc/new; rm /etc/removed; echo changed > /etc/of-image
            ls -A /run/sandbox-store | wc -l; grep -c sandbox-store /proc/self/mountinfo
            stat -c %a /; echo up; exec sleep 1000";
        let mut process = run(&root, script, super::IMAGE);
        for line in ["0", "0", "755", "up"] {
            assert_eq!(process.line(), line, "{namespaces:?}");
        }
        // The image is untouched, and the changes are on the volume already.
        assert!(!root.path().join("etc/new").exists());
        assert!(volume.path("overlay/u/etc/new").exists());
        assert_eq!(
            restored(&process),
            serde_json::json!({"level": "Workspace"})
        );
        let kept = kept(&save(&process));
        assert_eq!(kept["level"], "Root", "{kept}");
        assert!(
            kept["bytes"].as_u64().unwrap() > 0 && kept["reason"].is_null(),
            "{kept}"
        );
        end(process);

        let fresh = Volume::root();
        let mut process = run(&fresh, SHOW, super::IMAGE);
        for line in ["1", "changed", "token", "end"] {
            assert_eq!(process.line(), line, "{namespaces:?}");
        }
        assert_eq!(restored(&process), serde_json::json!({"level": "Root"}));
        // Without a save.
        kill(process);

        let fresh = Volume::root();
        let mut process = run(&fresh, SHOW, "sha256:two");
        for line in ["image", "/etc/removed", "token", "end"] {
            assert_eq!(process.line(), line, "{namespaces:?}");
        }
        let reason = restored(&process)["reason"].as_str().unwrap().to_owned();
        assert!(
            reason.starts_with("the image has changed from sha256:one"),
            "{reason}"
        );
        kill(process);

        // The digest was wrong: nothing is lost.
        let fresh = Volume::root();
        let mut process = run(&fresh, SHOW, super::IMAGE);
        assert_eq!(process.line(), "1");
        super::kept(&save(&process));
        assert!(!volume.path("overlay.previous").exists());
        end(process);
    }
}

#[test]
fn newer_format_is_set_aside_and_used_again_if_nothing_was_kept_since() {
    let test = "newer_format_is_set_aside_and_used_again_if_nothing_was_kept_since";
    let Some(volume) = Volume::new(test) else {
        return;
    };
    let renumber = |name: &str, version: u32| {
        let path = volume.path(name).join("meta.json");
        let meta = fs::read(&path).unwrap();
        let mut meta: serde_json::Value = serde_json::from_slice(&meta).unwrap();
        meta["version"] = version.into();
        // Other fields may have changed, too.
        meta["level"] = if version == 1 { "Root" } else { "Other" }.into();
        fs::write(&path, meta.to_string()).unwrap();
    };
    let roots: [TempDir; 4] = std::array::from_fn(|_| Volume::root());
    let run = |root: usize, script: &str| {
        let process = volume.supervise(&roots[root], Overlay);
        start(&process, &shell(script));
        process
    };
    let script = "cat /etc/new 2>/dev/null; echo $0 > /etc/new; echo end; exec sleep 1000";
    let write = |text: &str| script.replace("$0", text);
    let mut process = run(0, &write("first"));
    assert_eq!(process.line(), "end");
    kept(&save(&process));
    end(process);
    renumber("overlay", 2);
    let mut process = run(1, &write("second"));
    assert_eq!(process.line(), "end");
    let reason = restored(&process)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("version 2") && reason.contains("set aside"));
    assert_eq!(kept(&save(&process))["level"], "Root");
    end(process);
    assert!(volume.path("overlay.newer/u/etc/new").exists());
    // A supervisor that knows the format, after an older one has kept files.
    renumber("overlay.newer", 1);
    let mut process = run(2, &write("third"));
    for line in ["second", "end"] {
        assert_eq!(process.line(), line);
    }
    kept(&save(&process));
    end(process);
    assert!(volume.path("overlay.newer/u/etc/new").exists());
    // Without those files.
    fs::remove_dir_all(volume.path("overlay")).unwrap();
    let mut process = run(3, &write("fourth"));
    for line in ["first", "end"] {
        assert_eq!(process.line(), line);
    }
    assert_eq!(restored(&process), serde_json::json!({"level": "Root"}));
    assert!(!volume.path("overlay.newer").exists());
    kill(process);
}

#[test]
fn command_lacks_the_privileges_of_the_supervisor() {
    let test = "command_lacks_the_privileges_of_the_supervisor";
    let Some(volume) = Volume::new(test) else {
        return;
    };
    for namespaces in namespaces(test) {
        let root = Volume::root();
        let mut command = volume.command(&root, Overlay, namespaces);
        let mut process = TestProcess::start(&mut command);
        let script = "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status
            mount -t tmpfs none /tmp 2>/dev/null && echo mounted; ls /proc/$PPID/root 2>&1 | wc -l
            echo end; exec sleep 1000";
        start(&process, &shell(script));
        for _ in 0..5 {
            let line = process.line();
            let set = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
            // SETPCAP, SYS_PTRACE, SYS_ADMIN, SETFCAP, CHECKPOINT_RESTORE.
            for capability in [8, 19, 21, 31, 40] {
                assert_eq!(set & (1 << capability), 0, "{line} {namespaces:?}");
            }
        }
        // One line: it may not be read.
        assert_eq!((process.line(), process.line()), ("1".into(), "end".into()));
        kill(process);
        fs::remove_dir_all(volume.path("overlay")).unwrap();
    }
}

#[test]
fn mounts_find_their_places_if_parents_were_replaced() {
    let test = "mounts_find_their_places_if_parents_were_replaced";
    let Some(volume) = Volume::new(test) else {
        return;
    };
    let outside = tempfile::tempdir().unwrap();
    let root = Volume::root();
    let process = volume.supervise(&root, Overlay);
    start(&process, &shell("exec sleep 1000"));
    kept(&save(&process));
    end(process);
    // A Pod without these mounts may have left this. Targets are those of the new root.
    let upper = volume.path("overlay/u");
    for link in [
        "/nowhere",
        "../../../../..",
        "/tmp",
        outside.path().to_str().unwrap(),
    ] {
        for replaced in ["srv", "srv/conf", "dev"] {
            for name in ["srv", "dev", "tmp"] {
                let _ = fs::remove_dir_all(upper.join(name));
                let _ = fs::remove_file(upper.join(name));
            }
            fs::create_dir_all(upper.join(replaced).parent().unwrap()).unwrap();
            symlink(link, upper.join(replaced)).unwrap();
            let root = Volume::root();
            let mut process = volume.supervise(&root, Overlay);
            let script = "cat /srv/conf/token; ls /dev/null; echo end; exec sleep 1000";
            start(&process, &shell(script));
            for line in ["token", "/dev/null", "end"] {
                assert_eq!(process.line(), line, "{replaced} -> {link}");
            }
            kill(process);
            assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        }
    }
}
