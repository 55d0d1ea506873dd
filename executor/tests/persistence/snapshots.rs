//! Snapshots of a command that goes on, and other sandboxes that begin with them.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Command;

use crds::contract::control::{Grant, Init};
use crds::contract::persistence::PersistenceLevel::{self, Memory, Root};
use crds::contract::persistence::RootMechanism::{self, Archive, Node, Overlay};
use crds::contract::persistence::{LayerRequest, SnapshotRequest, SnapshotSource};
use crds::contract::variable;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::containers::{CAPABILITIES, Container, Volumes, namespaces};
use super::shell;
use super::volume::{IMAGE, Volume};
use crate::client::{HttpResponse, copy_program, pass_on, set_mode};
use crate::minimal_images::has_busybox;
use crate::supervise::{message, ready, signer, start, state, supervise_command};

/// Makes `$1` the root as a container runtime does, with the store `$2`, the workspace `$3` and the
/// snapshot `$4`, and runs the rest in it.
const ENTER: &str = r#"root=$1 store=$2 work=$3 snapshot=$4; shift 4
for path in /proc/self/fd/*; do
    number=${path##*/}
    [ "$number" -le 2 ] || eval "exec $number>&-"
done
mount --make-rprivate / && mount -t tmpfs none /dev/shm &&
mount --bind "$root" "$root" && mount --rbind /dev "$root/dev" &&
mount -t proc proc "$root/proc" && mount --bind "$store" "$root/run/sandbox-store" &&
mount --bind "$work" "$root/workspace" || exit
[ ! -e "$store/changes" ] || { mkdir "$root/run/sandbox-changes" &&
    mount --bind "$store/changes" "$root/run/sandbox-changes"; } || exit
[ -z "$snapshot" ] || { mkdir -p "$root/run/sandbox-snapshot" &&
    mount --bind "$snapshot" "$root/run/sandbox-snapshot" &&
    mount -o remount,bind,ro "$root/run/sandbox-snapshot"; } || exit
cd "$root" && pivot_root . old && cd / && /bin/busybox umount -l /old || exit
exec "$@""#;

/// Changes files, keeps some open, and answers to the file `ask` of the workspace with what it has.
const COMMAND: &str = "number=$(cat /proc/sys/kernel/random/uuid); count=0
    echo changed > /etc/of-image; rm /etc/removed; mkdir /etc/new; echo new > /etc/new/file
    exec 5> /etc/open; echo one >&5; echo shared > /dev/shm/file; exec 6> /workspace/log
    echo up $number
    while :; do
        if [ -e /workspace/ask ]; then
            rm /workspace/ask; count=$((count + 1)); echo $count >&6
            echo $number $(cat /etc/of-image /etc/new/file /etc/open /dev/shm/file /workspace/log)
            [ ! -e /etc/removed ] || echo not removed
        fi
        sleep 0.01
    done";

/// One sandbox: its volume, and the root of its container.
struct Sandbox {
    volumes: Volumes,
    image: TempDir,
    mechanism: RootMechanism,
}

impl Sandbox {
    fn new(test: &str, mechanism: RootMechanism) -> Option<Self> {
        let volumes = Volumes::new(test)?;
        if !has_busybox(test) {
            return None;
        }
        let image = Self::image(&volumes);
        Some(Self {
            volumes,
            image,
            mechanism,
        })
    }

    fn image(volumes: &Volumes) -> TempDir {
        let image = Volume::root();
        for name in ["old", "workspace"] {
            fs::create_dir(image.path().join(name)).unwrap();
        }
        copy_program(&volumes.criu, &image.path().join("criu"));
        image
    }

    fn run(&self, level: PersistenceLevel, from: Option<&PathBuf>, init: &Init) -> Container {
        let inner = supervise_command("/sandbox-executor", "/run/sandbox".as_ref());
        let mut command = namespaces(true);
        command
            .args(["setpriv", "--bounding-set"])
            .arg(format!("{CAPABILITIES},+sys_admin"))
            .args(["bash", "-c", ENTER, "bash"])
            .arg(self.image.path())
            .arg(self.volumes.store())
            .arg(self.volumes.work())
            .arg(from.map(|path| path.as_os_str()).unwrap_or_default())
            .arg(inner.get_program())
            .env_clear()
            .env(
                "SANDBOX_PERSISTENCE",
                Volumes::persistence(level, self.mechanism),
            )
            .env("SANDBOX_NODE_ROOT", r#"{"level": "Root"}"#);
        pass_on(&inner, &mut command).args(["--criu", "/criu"]);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let container = Container::start(&mut command, tempfile::tempdir().unwrap());
        let response = start(&container, init);
        assert_eq!(response.status, 200, "{}", response.body);
        container
    }

    fn ask(&self, container: &mut Container) -> String {
        fs::write(self.volumes.work().join("ask"), "").unwrap();
        container.line()
    }

    fn snapshot(&self, id: &str) -> PathBuf {
        self.volumes.store().join("snapshots").join(id)
    }
}

/// Init message of a sandbox that begins with a snapshot.
fn begin(id: &str, key: char) -> Init {
    let mut init = shell(COMMAND);
    init.sandbox_uid = Some("another".into());
    init.environment.insert("OTHER".into(), "value".into());
    if let Some(state) = &mut init.state {
        state.source = Some(SnapshotSource {
            id: id.into(),
            key: key.to_string().repeat(43),
            workspace: "/workspace".into(),
        });
    }
    init
}

fn take(container: &Container, id: &str, level: PersistenceLevel, others: &[&str]) -> Value {
    assert_eq!(state(&ready(container.address, 20)), "ready");
    let response = ask(container, id, level, others, 60);
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}

fn ask(
    container: &Container,
    id: &str,
    level: PersistenceLevel,
    others: &[&str],
    timeout: u64,
) -> HttpResponse {
    let request = SnapshotRequest {
        id: id.into(),
        key: "E".repeat(43),
        level,
        image: IMAGE.into(),
        workspace: "/workspace".into(),
        others: others.iter().map(|other| (*other).to_owned()).collect(),
    };
    request_snapshot(container, request, timeout)
}

pub(super) fn request_snapshot(
    container: &Container,
    request: SnapshotRequest,
    timeout: u64,
) -> HttpResponse {
    let token = message(Grant::Snapshot(request)).sign(&signer()).unwrap();
    let head = format!("POST /v1/snapshot?timeout={timeout}");
    container.request(&head, &[], token.as_bytes())
}

#[test]
fn sandboxes_that_begin_with_a_snapshot_go_on_each_for_itself() {
    let test = "sandboxes_that_begin_with_a_snapshot_go_on_each_for_itself";
    for mechanism in [Overlay, Archive] {
        let Some(parent) = Sandbox::new(test, mechanism) else {
            return;
        };
        let mut container = parent.run(Memory, None, &shell(COMMAND));
        let line = container.line();
        let number = line.strip_prefix("up ").unwrap();
        let files = format!("{number} changed new one shared");
        assert_eq!(parent.ask(&mut container), format!("{files} 1"));
        let report = take(&container, "first", Memory, &[]);
        assert_eq!(report["kept"]["level"], "Memory", "{mechanism:?} {report}");
        assert!(report["kept"]["reason"].is_null(), "{report}");
        assert_eq!(parent.ask(&mut container), format!("{files} 1 2"));
        // A repeated call reports on the same one.
        assert_eq!(take(&container, "first", Memory, &[]), report);

        let children = [0, 1].map(|_| Sandbox::new(test, mechanism).unwrap());
        let snapshot = parent.snapshot("first");
        let init = begin("first", 'E');
        let mut running = children
            .each_ref()
            .map(|child| child.run(Memory, Some(&snapshot), &init));
        let all = [&container, &running[0], &running[1]];
        let ids: HashSet<String> = all.map(Container::processes_id).into();
        assert_eq!(ids.len(), 3, "each copy has an id of its own");
        for (child, container) in children.iter().zip(&mut running) {
            let restored = container.restored();
            assert_eq!(restored["level"], "Memory", "{mechanism:?} {restored}");
            assert!(restored["reason"].is_null(), "{restored}");
            assert_eq!(child.ask(container), format!("{files} 1 2"));
            assert_eq!(child.ask(container), format!("{files} 1 2 3"));
        }
        assert_eq!(parent.ask(&mut container), format!("{files} 1 2 3"));

        // A child has its own state from now on: paused, and resumed without the snapshot.
        let [first, _] = running;
        let kept = super::kept(&super::save(&first));
        assert_eq!(kept["level"], "Memory", "{kept}");
        first.end();
        let child = Sandbox {
            image: Sandbox::image(&children[0].volumes),
            ..children.into_iter().next().unwrap()
        };
        let mut again = child.run(Memory, None, &init);
        assert_eq!(child.ask(&mut again), format!("{files} 1 2 3 4"));

        // A snapshot of less: the command begins anew with the files. The other one is not known
        // any more.
        let report = take(&container, "second", Root, &[]);
        assert_eq!(report["kept"]["level"], "Root", "{report}");
        assert!(!snapshot.exists() && parent.snapshot("second").exists());
        let other = Sandbox::new(test, mechanism).unwrap();
        let mut init = begin("second", 'E');
        init.command[2] = "echo $(cat /etc/of-image /etc/new/file /etc/open /workspace/log); \
            [ -e /etc/removed ] || echo removed; sleep 1000"
            .into();
        let snapshot = parent.snapshot("second");
        let mut fresh = other.run(Memory, Some(&snapshot), &init);
        assert_eq!(fresh.line(), "changed new one 1 2 3");
        assert_eq!(fresh.line(), "removed");
        assert_eq!(fresh.restored(), json!({"level": "Root"}));
        assert!(container.stop() != 0);
    }
}

#[test]
fn processes_are_not_in_a_snapshot_without_the_files_that_they_use() {
    let test = "processes_are_not_in_a_snapshot_without_the_files_that_they_use";
    let Some(parent) = Sandbox::new(test, Node) else {
        return;
    };
    // The node does not show the changed files.
    let container = parent.run(Memory, None, &shell("sleep 1000"));
    let report = take(&container, "one", Memory, &[]);
    let kept = &report["kept"];
    assert_eq!(kept["level"], "Workspace", "{report}");
    assert_eq!(
        kept["reason"],
        "processes are not in the snapshot: the files that they use are not in it; the node does \
         not show the changed files"
    );
    assert!(!parent.snapshot("one").join("processes").exists());
}

#[test]
fn changes_that_the_node_keeps_are_read_from_its_upper_directory() {
    let test = "changes_that_the_node_keeps_are_read_from_its_upper_directory";
    let Some(parent) = Sandbox::new(test, Node) else {
        return;
    };
    // As if the node had mounted it over the image.
    let upper = parent.volumes.store().join("changes");
    fs::create_dir_all(upper.join("etc/whole")).unwrap();
    set_mode(&upper, 0o755);
    let etc = upper.join("etc");
    fs::write(etc.join("of-image"), "changed\n").unwrap();
    fs::write(etc.join("whole/file"), "new\n").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        etc.join("removed"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::empty(),
        0,
    )
    .unwrap();
    // One directory is there as a whole; of the other one, a file deep below has changed.
    fs::create_dir_all(etc.join("outer/inner")).unwrap();
    fs::write(etc.join("outer/inner/changed"), "changed\n").unwrap();
    let image = |sandbox: &Sandbox| {
        let etc = sandbox.image.path().join("etc");
        for (path, content) in [
            ("outer/inner/changed", "old\n"),
            ("outer/inner/unchanged", "old\n"),
            ("whole/of-image", ""),
        ] {
            fs::create_dir_all(etc.join(path).parent().unwrap()).unwrap();
            fs::write(etc.join(path), content).unwrap();
        }
    };
    image(&parent);
    let whole = parent.image.path().join("etc/whole");
    fs::rename(whole.join("of-image"), whole.join("file")).unwrap();
    // Left out, and no obstacle.
    fs::create_dir(etc.join(".wh.odd")).unwrap();
    let container = parent.run(Root, None, &shell("sleep 1000"));
    let report = take(&container, "one", Root, &[]);
    assert_eq!(report["kept"]["level"], "Root", "{report}");
    let child = Sandbox::new(test, Archive).unwrap();
    image(&child);
    let mut init = begin("one", 'E');
    init.command[2] = "cat /etc/of-image; cat /etc/whole/*; ls /etc/whole; \
        cat /etc/outer/inner/*; [ -e /etc/removed ] || echo removed; sleep 1000"
        .into();
    let expected = ["changed", "new", "file", "changed", "old", "removed"];
    let mut begun = child.run(Root, Some(&parent.snapshot("one")), &init);
    for line in expected {
        assert_eq!(begun.line(), line);
    }
    // It is killed before any save, and comes back without the snapshot.
    begun.kill();
    let image = Sandbox::image(&child.volumes);
    let child = Sandbox { image, ..child };
    fs::create_dir(child.image.path().join("etc/whole")).unwrap();
    fs::write(child.image.path().join("etc/whole/of-image"), "").unwrap();
    init.command[2] = "cat /etc/of-image; cat /etc/whole/*; ls /etc/whole; sleep 1000".into();
    let mut again = child.run(Root, None, &init);
    for line in &expected[..3] {
        assert_eq!(again.line(), *line);
    }
}

/// A copy of many bytes takes some time.
#[test]
fn save_ends_a_copy_that_is_being_made() {
    let test = "save_ends_a_copy_that_is_being_made";
    let Some(sandbox) = Sandbox::new(test, Archive) else {
        return;
    };
    fs::write(sandbox.volumes.work().join("large"), vec![7; 400 << 20]).unwrap();
    let mut container = sandbox.run(Memory, None, &shell(COMMAND));
    let line = container.line();
    assert_eq!(state(&ready(container.address, 20)), "ready");
    assert_eq!(ask(&container, "one", Memory, &[], 0).json(), json!({}));
    assert_eq!(ask(&container, "two", Memory, &[], 0).status, 409);
    let kept = super::kept(&super::save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    let report = ask(&container, "one", Memory, &[], 20).json();
    assert_eq!(report["error"], "a pause or the end of the Pod came before");
    assert!(!sandbox.snapshot("one").exists());
    container.end();
    let image = Sandbox::image(&sandbox.volumes);
    let sandbox = Sandbox { image, ..sandbox };
    let mut container = sandbox.run(Memory, None, &shell(COMMAND));
    let number = line.strip_prefix("up ").unwrap();
    let answer = sandbox.ask(&mut container);
    assert!(answer.starts_with(number), "{answer}");

    // The end of the Pod comes in a copy: nothing is left of it, and the processes are saved.
    assert_eq!(state(&ready(container.address, 20)), "ready");
    assert_eq!(ask(&container, "three", Memory, &[], 0).json(), json!({}));
    assert_eq!(container.stop(), 143);
    assert!(!sandbox.snapshot("three").exists());
    let image = Sandbox::image(&sandbox.volumes);
    let sandbox = Sandbox { image, ..sandbox };
    let mut container = sandbox.run(Memory, None, &shell(COMMAND));
    let answer = sandbox.ask(&mut container);
    assert!(answer.starts_with(number), "{answer}");
}

/// A server that cannot be told its new session key must not go on with that of another sandbox.
#[test]
fn sandbox_whose_server_takes_no_key_begins_anew_with_the_files() {
    let test = "sandbox_whose_server_takes_no_key_begins_anew_with_the_files";
    let with_key = |mut init: Init, key: &str| {
        init.command = ["/server/sandbox-executor", "serve"]
            .map(String::from)
            .into();
        let key = (variable::SESSION_API_KEY.to_owned(), key.to_owned());
        init.environment.extend([key]);
        init
    };
    let new = || {
        let sandbox = Sandbox::new(test, Archive)?;
        let server = sandbox.image.path().join("server/sandbox-executor");
        fs::create_dir(server.parent().unwrap()).unwrap();
        fs::write(&server, format!("#!/bin/busybox sh\n{COMMAND}")).unwrap();
        set_mode(&server, 0o755);
        Some(sandbox)
    };
    let Some(parent) = new() else {
        return;
    };
    let mut container = parent.run(Memory, None, &with_key(shell(COMMAND), "parent"));
    let line = container.line();
    let report = take(&container, "one", Memory, &[]);
    assert_eq!(report["kept"]["level"], "Memory", "{report}");
    let child = new().unwrap();
    let init = with_key(begin("one", 'E'), "child");
    let mut fork = child.run(Memory, Some(&parent.snapshot("one")), &init);
    let restored = fork.restored();
    assert_eq!(restored["level"], "Root");
    let reason = restored["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("processes did not go on: no new session key: cannot connect"),
        "{reason}"
    );
    assert_ne!(fork.line(), line);
    let answer = child.ask(&mut fork);
    assert!(answer.contains("changed new"), "{answer}");
}

/// Status, head and body of the response to a request for the changed files of a snapshot.
fn layer(container: &Container, grant: Grant) -> (u16, String, Vec<u8>) {
    let token = message(grant).sign(&signer()).unwrap();
    let authorization = format!("Bearer {token}");
    let headers = [("Authorization", &*authorization)];
    let mut stream = crate::client::send(container.address, "GET /v1/layer", &headers, b"");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), answer[end + 4..].to_vec())
}

fn layer_of(container: &Container, id: &str, key: char) -> (u16, String, Vec<u8>) {
    let request = LayerRequest {
        id: id.into(),
        key: key.to_string().repeat(43),
    };
    layer(container, Grant::Layer(request))
}

/// Entries of a layer: path, kind, owner and mode, and content or target.
fn entries(layer: &[u8]) -> BTreeMap<String, (tar::EntryType, String, String)> {
    let mut archive = tar::Archive::new(layer);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let header = entry.header().clone();
        let (uid, gid) = (header.uid().unwrap(), header.gid().unwrap());
        let access = format!("{uid}:{gid} {:o}", header.mode().unwrap());
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let target = entry.link_name_bytes();
        let target = target.map(|target| String::from_utf8(target.into_owned()).unwrap());
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        let content = target.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
        (path, (header.entry_type(), access, content))
    });
    let entries: Vec<_> = entries.collect();
    let count = entries.len();
    let by_path = BTreeMap::from_iter(entries);
    assert_eq!(by_path.len(), count, "a path comes twice");
    by_path
}

/// Changes of all kinds that a layer has its own form for.
const CHANGE_FILES: &str = "echo changed > /etc/of-image; rm /etc/removed
    echo one > /etc/one; ln /etc/one /etc/two; ln -s one /etc/link
    chmod 4750 /etc/one; truncate -s 3000000 /etc/sparse; echo end >> /etc/sparse
    rm -r /etc/whole; mkdir /etc/whole; echo new > /etc/whole/new
    echo changed > /etc/outer/inner/changed; echo up; sleep 1000";

#[test]
fn changed_files_of_a_snapshot_are_a_layer_of_an_image() {
    let test = "changed_files_of_a_snapshot_are_a_layer_of_an_image";
    for mechanism in [Overlay, Archive] {
        let Some(sandbox) = Sandbox::new(test, mechanism) else {
            return;
        };
        let etc = sandbox.image.path().join("etc");
        for name in ["whole/old", "outer/inner/changed", "outer/inner/kept"] {
            fs::create_dir_all(etc.join(name).parent().unwrap()).unwrap();
            fs::write(etc.join(name), "of the image").unwrap();
        }
        let mut container = sandbox.run(Root, None, &shell(CHANGE_FILES));
        assert_eq!(container.line(), "up");
        let report = take(&container, "one", Root, &[]);
        assert_eq!(report["kept"]["level"], "Root", "{report}");
        let (status, head, body) = layer_of(&container, "one", 'E');
        assert_eq!(status, 200, "{head}");
        let length = format!("content-length: {}", body.len());
        assert!(
            head.contains(&length) && head.contains("x-sandbox-architecture: "),
            "{head}"
        );

        let found = entries(&body);
        let file = |path: &str| {
            let entry = found.get(path);
            let (kind, access, content) = entry.unwrap_or_else(|| panic!("{path}: {found:?}"));
            assert!(kind.is_file(), "{path} is {kind:?}");
            (&**access, &**content)
        };
        assert_eq!(file("etc/of-image").1, "changed\n");
        assert_eq!(file("etc/.wh.removed").1, "");
        assert_eq!(file("etc/one"), ("0:0 4750", "one\n"));
        assert_eq!(found["etc/two"].0, tar::EntryType::Link);
        assert_eq!(found["etc/two"].2, "etc/one");
        assert_eq!(found["etc/link"].0, tar::EntryType::Symlink);
        assert_eq!(found["etc/link"].2, "one");
        let sparse = file("etc/sparse").1;
        assert!(sparse.len() == 3_000_004 && sparse.ends_with("\0end\n"));
        assert_eq!(file("etc/whole/new").1, "new\n");
        assert_eq!(file("etc/outer/inner/changed").1, "changed\n");
        // Hidden are these and no others, by either form of markers.
        let is_marker = |path: &&String| path.starts_with("etc/") && path.contains(".wh.");
        let markers = found.keys().filter(is_marker);
        let markers: Vec<_> = markers.map(String::as_str).collect();
        let hidden = match mechanism {
            Overlay => "etc/whole/.wh..wh..opq",
            _ => "etc/whole/.wh.old",
        };
        assert_eq!(markers, ["etc/.wh.removed", hidden], "{mechanism:?}");
        assert!(!found.contains_key("etc/outer/inner/kept"));

        // The same again, also for the program that container runtimes agree with.
        assert_eq!(layer_of(&container, "one", 'E').2, body);
        let path = sandbox.volumes.store().join("layer.tar");
        fs::write(&path, &body).unwrap();
        let listed = Command::new("tar").arg("-tf").arg(&path).output().unwrap();
        let errors = String::from_utf8_lossy(&listed.stderr);
        assert!(listed.status.success() && errors.is_empty(), "{errors}");

        let detail = |(status, _, body): (u16, String, Vec<u8>)| {
            let body: Value = serde_json::from_slice(&body).unwrap();
            (status, body["detail"].as_str().unwrap().to_owned())
        };
        let (status, said) = detail(layer_of(&container, "one", 'M'));
        assert!(status == 409 && said.contains("damaged"), "{said}");
        assert_eq!(detail(layer_of(&container, "two", 'E')).0, 404);
        assert_eq!(detail(layer_of(&container, "../one", 'E')).0, 400);
        assert_eq!(detail(layer(&container, Grant::Ready)).0, 403);
        assert_eq!(container.request("GET /v1/layer", &[], b"").status, 401);

        // A damaged archive is noticed before the response begins.
        let archive = sandbox.snapshot("one").join("root");
        let mut bytes = fs::read(&archive).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&archive, bytes).unwrap();
        let (status, said) = detail(layer_of(&container, "one", 'E'));
        assert!(status == 409 && said.contains("damaged"), "{said}");

        let report = take(&container, "files", PersistenceLevel::Workspace, &[]);
        assert_eq!(report["kept"]["level"], "Workspace", "{report}");
        let (status, said) = detail(layer_of(&container, "files", 'E'));
        assert_eq!((status, &*said), (409, "the snapshot has no changed files"));
    }
}

#[test]
fn start_with_a_damaged_or_foreign_snapshot_fails() {
    let test = "start_with_a_damaged_or_foreign_snapshot_fails";
    let Some(parent) = Sandbox::new(test, Archive) else {
        return;
    };
    let mut container = parent.run(Memory, None, &shell(COMMAND));
    container.line();
    take(&container, "one", Memory, &[]);
    let snapshot = parent.snapshot("one");
    let fails = |init: &Init, from: Option<&PathBuf>| {
        let child = Sandbox::new(test, Archive).unwrap();
        let log = child.run(Memory, from, init).log_of_ended();
        let (_, detail) = log.split_once("cannot begin with the snapshot: ").unwrap();
        detail.split('"').next().unwrap().to_owned()
    };
    let other = fails(&begin("one", 'M'), Some(&snapshot));
    assert!(other.contains("damaged"), "{other}");
    let missing = fails(&begin("one", 'E'), None);
    assert_eq!(
        missing,
        "the snapshot that the sandbox begins with is not there"
    );
    let path = snapshot.join("workspace");
    let mut archive = fs::read(&path).unwrap();
    let middle = archive.len() / 2;
    archive[middle] ^= 1;
    fs::write(&path, archive).unwrap();
    let damaged = fails(&begin("one", 'E'), Some(&snapshot));
    assert!(damaged.contains("damaged"), "{damaged}");
    fs::remove_file(snapshot.join("snapshot")).unwrap();
    let incomplete = fails(&begin("one", 'E'), Some(&snapshot));
    assert!(incomplete.contains("not complete"), "{incomplete}");
}
