//! Level `Memory` with a root of its own: the files that processes use come back with them.

use std::fs;

use crds::contract::persistence::PersistenceLevel;
use crds::contract::persistence::RootMechanism::{self, Archive, Overlay};
use tempfile::TempDir;

use super::containers::{CAPABILITIES, Container, Volumes, namespaces};
use super::volume::Volume;
use super::{kept, save, shell};
use crate::client::{copy_program, pass_on};
use crate::minimal_images::has_busybox;
use crate::supervise::{start, supervise_command};

/// Makes `$1` the root as a container runtime does, with the store `$2`, and runs the rest in it.
const ENTER: &str = r#"root=$1 store=$2; shift 2
for path in /proc/self/fd/*; do
    number=${path##*/}
    [ "$number" -le 2 ] || eval "exec $number>&-"
done
mount --make-rprivate / && mount -t tmpfs none /dev/shm &&
mount --bind "$root" "$root" && mount --rbind /dev "$root/dev" &&
mount -t proc proc "$root/proc" && mount --bind "$store" "$root/run/sandbox-store" &&
cd "$root" && pivot_root . old && cd / && /bin/busybox umount -l /old || exit
exec "$@""#;

/// Changes files, keeps two open, and waits for the file `/ask`, which no pause keeps.
const COMMAND: &str = "number=$(cat /proc/sys/kernel/random/uuid); count=0
    echo changed > /etc/of-image; rm /etc/removed; exec 5> /etc/open; echo one >&5
    mkdir /dev/shm/below; exec 6> /dev/shm/below/open; echo shared >&6; echo closed > /dev/shm/closed
    (sleep 1000 & echo $! > /etc/daemon)
    echo up $number
    while :; do
        if [ -e /tmp/ask ]; then
            rm /tmp/ask; count=$((count + 1)); echo $count >&5
            kill -0 $(cat /etc/daemon) && grep CapBnd /proc/self/status &&
                echo $number $(cat /etc/of-image /etc/open /dev/shm/below/open /dev/shm/closed)
        fi
        sleep 0.01
    done";

fn run(volumes: &Volumes, root: &TempDir, mechanism: RootMechanism) -> Container {
    let inner = supervise_command("/sandbox-executor", "/run/sandbox".as_ref());
    let mut command = namespaces(true);
    command
        .args(["setpriv", "--bounding-set"])
        .arg(format!("{CAPABILITIES},+sys_admin"))
        .args(["bash", "-c", ENTER, "bash"])
        .arg(root.path())
        .arg(volumes.store())
        .arg(inner.get_program())
        .env_clear()
        .env(
            "SANDBOX_PERSISTENCE",
            Volumes::persistence(PersistenceLevel::Memory, mechanism),
        );
    pass_on(&inner, &mut command).args(["--criu", "/criu"]);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let container = Container::start(&mut command, tempfile::tempdir().unwrap());
    start(&container, &shell(COMMAND));
    container
}

fn root(volumes: &Volumes) -> TempDir {
    let root = Volume::root();
    fs::create_dir(root.path().join("old")).unwrap();
    copy_program(&volumes.criu, &root.path().join("criu"));
    root
}

fn ask(container: &mut Container) -> String {
    let pid = container.first_process();
    fs::write(format!("/proc/{pid}/root/tmp/ask"), "").unwrap();
    let line = container.line();
    let set = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
    // SYS_PTRACE, SYS_ADMIN, CHECKPOINT_RESTORE.
    for capability in [19, 21, 40] {
        assert_eq!(set & (1 << capability), 0, "{line}");
    }
    container.line()
}

#[test]
fn processes_go_on_with_their_files_in_a_fresh_root() {
    let test = "processes_go_on_with_their_files_in_a_fresh_root";
    if !has_busybox(test) {
        return;
    }
    for mechanism in [Overlay, Archive] {
        let Some(volumes) = Volumes::new(test) else {
            return;
        };
        let image = root(&volumes);
        let mut container = run(&volumes, &image, mechanism);
        let line = container.line();
        let number = line.strip_prefix("up ").unwrap();
        let answer = ask(&mut container);
        assert_eq!(answer, format!("{number} changed one 1 shared closed"));
        let kept = kept(&save(&container));
        assert_eq!(kept["level"], "Memory", "{mechanism:?} {kept}");
        container.end();
        for count in ["1 2", "1 2 3"] {
            let image = root(&volumes);
            let mut container = run(&volumes, &image, mechanism);
            let restored = container.restored();
            assert_eq!(restored["level"], "Memory", "{mechanism:?} {restored}");
            let expected = format!("{number} changed one {count} shared closed");
            assert_eq!(ask(&mut container), expected, "{mechanism:?}");
            assert!(!image.path().join("etc/open").exists() || mechanism == Archive);
            let kept = super::kept(&save(&container));
            assert_eq!(kept["level"], "Memory", "{mechanism:?} {kept}");
            container.end();
        }
    }
}
