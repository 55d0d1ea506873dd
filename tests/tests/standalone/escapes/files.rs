//! Files that a sandbox must not change or see: those of the node, of the shared layers of its
//! image, and of its neighbours.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tests::binaries::binary;
use tests::escapes::outside::outside;
use tests::registry::{add_program, image_of, small_root};
use tests::tree::{difference, listing};

use super::setting::{Setting, contexts, setting};
use crate::sessions::{open, read};

fn hash(path: &Path) -> Vec<u8> {
    digest(&SHA256, &fs::read(path).unwrap()).as_ref().to_vec()
}

fn shell(script: &str) -> Value {
    json!(["sh", "-c", script])
}

/// Applies a Pod with an init container that prepares the volume `v` at `/v`, and a main one.
fn apply(setting: &Setting, name: &str, prepare: &str, main: &Value, more: &Value) {
    let mount = json!([{"name": "v", "mountPath": "/v"}]);
    let mut container = json!({"name": "main", "image": "host", "volumeMounts": mount});
    let fields = main.as_object().unwrap().clone();
    container.as_object_mut().unwrap().extend(fields);
    let init = json!({"name": "init", "image": "host", "command": shell(prepare),
        "volumeMounts": mount});
    let mut spec = json!({"restartPolicy": "Never", "initContainers": [init],
        "containers": [container], "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "v", "emptyDir": {}}]});
    let fields = more.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(fields);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let file = setting.fixture.state.path().join(format!("{name}.json"));
    fs::write(&file, pod.to_string()).unwrap();
    let file = file.display();
    setting.fixture.kubectl(&format!("apply -f {file}"));
}

/// Changes to `$1/bin/bash`, which belongs to a layer. Some may fail.
const CHANGES: &str = "cd $1; f=bin/bash; mkdir -p tmp; ln $f tmp/link; echo x >> tmp/link; \
    chmod 4777 $f; touch -d @1 $f; chown 1:1 $f; echo x >> $f; mv $f tmp/moved; \
    echo y > tmp/moved; rm -rf lib bin/[a-z]*; echo done";

#[test]
fn layers_of_an_image_are_the_same_bytes_after_its_sandboxes_have_changed_them() {
    let Some(setting) = setting(&[]) else { return };
    let layers = setting.fixture.state.path().join("node/images/layers");
    let script = CHANGES.replace("$1", "/");
    for (name, context) in contexts() {
        let container =
            json!({"command": ["perl", "-e", "sleep 1000"], "securityContext": context});
        setting.run(name, &setting.image, &container);
    }
    let before = listing(&layers).unwrap();
    for (name, _) in contexts() {
        let output = setting.exec(name, &script);
        assert!(output.ends_with("done\n"), "{output}");
    }
    assert_eq!(
        difference(&before, &listing(&layers).unwrap()),
        Vec::<String>::new()
    );
    let container = json!({"command": ["/bin/bash", "-c", "echo whole"]});
    assert_eq!(setting.once("next", &setting.image, &container), "whole\n");

    let copy = tempfile::tempdir().unwrap();
    let mut copy_all = Command::new("cp");
    copy_all.arg("-a").arg(layers.join(".")).arg(copy.path());
    assert!(copy_all.status().unwrap().success());
    assert_eq!(
        difference(&before, &listing(copy.path()).unwrap()),
        Vec::<String>::new()
    );
    let is_layer = |path: &PathBuf| path.join("bin/bash").exists();
    let entries = fs::read_dir(copy.path()).unwrap();
    let layer = entries.map(|entry| entry.unwrap().path()).find(is_layer);
    outside(CHANGES, &["sh", layer.unwrap().to_str().unwrap()]);
    assert_ne!(
        difference(&before, &listing(copy.path()).unwrap()),
        Vec::<String>::new()
    );
}

#[test]
fn programs_of_the_image_do_not_raise_rights() {
    let Some(setting) = setting(&[]) else { return };
    let root = small_root();
    let program = root.path().join("bin/raised");
    fs::copy("/bin/bash", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = image_of(root.path(), &json!({}));
    let image = setting.registry.push(image.path(), "raised:1");
    let command = json!({"command": ["/bin/raised", "-p", "-c", "echo $EUID"],
        "securityContext": {"runAsUser": 33}});
    assert_eq!(setting.once("raised", &image, &command), "33\n");
    let script = "exec setpriv --reuid 33 --clear-groups $0 -p -c 'echo $EUID'";
    assert_eq!(outside(script, &[program.to_str().unwrap()]), "0\n");
}

/// The last attempt runs the node's program as the interpreter of a script, whose process then
/// has it as its executable.
#[tokio::test(flavor = "multi_thread")]
async fn programs_of_the_node_cannot_be_replaced() {
    const REPLACE: &str = "t() { cp -f /bin/busybox $1; mv $1 $1.old; mv ${1%/*} /tmp/moved && \
        mkdir ${1%/*} && cp /bin/busybox $1; dd if=/bin/busybox of=$1 conv=notrunc; \
        echo >> $1; }; ";
    let Some(setting) = setting(&[]) else { return };
    let root = small_root();
    for program in ["/usr/bin/dd", "/usr/bin/cp", "/usr/bin/mv"] {
        add_program(root.path(), program);
    }
    fs::write(root.path().join("bin/script"), "#!/proc/self/exe\n").unwrap();
    fs::set_permissions(
        root.path().join("bin/script"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let image = image_of(root.path(), &json!({}));
    let image = setting.registry.push(image.path(), "programs:1");
    let names = ["sandbox-standalone", "sandbox-executor"];
    let before = names.map(|name| hash(&binary(name)));

    let command = json!({"command": ["/bin/sleep", "1000"]});
    setting.run("p", &image, &command);
    let script =
        format!("{REPLACE} t /.sandbox-node/*; mkdir /tmp/d; echo a > /tmp/d/f; t /tmp/d/f");
    let output = setting.exec("p", &script);
    let refused = [
        "Read-only file system",
        "Text file busy",
        "Device or resource busy",
    ];
    let refused = refused.map(|text| output.matches(text).count());
    assert_eq!(refused, [2, 2, 1], "{output}");
    setting.exec("p", "/bin/script & echo >> /proc/$!/exe");
    assert_eq!(
        setting.exec("p", "echo works; ls -A /.sandbox-node/* | wc -l"),
        "works\n1\n"
    );
    // The control: a file of the container has got other content by the same commands.
    let compared = setting.exec("p", "cmp /bin/busybox /tmp/d/f");
    assert!(
        compared.starts_with("cmp: EOF on /bin/busybox\n"),
        "{compared}"
    );

    let mine = setting.fixture.run_image("mine", &image).await;
    let other = setting.fixture.run_image("other", &image).await;
    let path = "$(cat /proc/1/cmdline | tr '\\0' '\\n' | head -1)";
    let output = mine
        .run(&format!(
            "{REPLACE} t {path}; echo >> /proc/1/exe; echo end"
        ))
        .await;
    assert!(output.ends_with("end"), "{output}");
    assert_eq!(other.run("echo works").await, "works");
    assert_eq!(mine.run("echo works").await, "works");
    assert_eq!(names.map(|name| hash(&binary(name))), before);
}

#[test]
fn links_in_a_volume_lead_nowhere_outside_of_the_sandbox() {
    let Some(setting) = setting(&[]) else { return };
    let secret = setting.secret();
    let state = setting.fixture.state.path().to_str().unwrap().to_owned();
    let prepare = format!("mkdir /v/real; ln -s {state} /v/link; ln -s {secret} /v/file");
    let idle = json!({"command": ["sleep", "1000"]});
    let part = |path: &str| {
        let mount = json!([{"name": "v", "mountPath": "/v", "subPath": path}]);
        json!({"command": ["sleep", "1000"], "volumeMounts": mount})
    };
    let directory = |path: &str| json!({"command": ["sleep", "1000"], "workingDir": path});
    for (name, main, more) in [
        ("real", part("real"), json!({})),
        ("link", part("link"), json!({})),
        ("below", part("link/node"), json!({})),
        ("file", part("file"), json!({})),
        ("work", directory("/v/real/made/here"), json!({})),
        ("outside", directory("/v/link/made/here"), json!({})),
        (
            "group",
            idle.clone(),
            json!({"securityContext": {"fsGroup": 4242}}),
        ),
    ] {
        apply(&setting, name, &prepare, &main, &more);
    }
    let before = fs::metadata(&secret).unwrap();
    for name in ["real", "work", "group"] {
        setting.ready(name);
    }
    let reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    for name in ["link", "below", "file"] {
        let failed = "CreateContainerConfigError";
        let wait = format!("wait --for={reason}={failed} pod/{name} --timeout=60s");
        setting.fixture.kubectl(&wait);
    }
    assert_eq!(
        setting.exec("work", "pwd; stat -c %F /v/real/made"),
        "/v/real/made/here\ndirectory\n"
    );
    let ended = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=126";
    let wait = format!("wait --for={ended} pod/outside --timeout=60s");
    setting.fixture.kubectl(&wait);
    assert!(!Path::new(&state).join("made").exists());
    let group = setting.exec("group", "stat -c %g /v/real; cat /v/file");
    assert!(
        group.starts_with("4242\n") && group.contains("No such file"),
        "{group}"
    );
    let after = fs::metadata(&secret).unwrap();
    assert_eq!((after.gid(), after.mode()), (before.gid(), before.mode()));
}

/// A descriptor of the node that is open in the container would be a way out of it.
#[test]
fn working_directory_is_no_descriptor_of_the_node() {
    let Some(setting) = setting(&[]) else { return };
    let secret = setting.secret();
    let script = format!("pwd; cat ../../../../../../..{secret}; cat {secret}; cat $PWD/1; true");
    for number in 0..12 {
        let container = json!({"command": shell(&script),
            "workingDir": format!("/proc/self/fd/{number}")});
        setting
            .fixture
            .pod(&format!("fd{number}"), "host", &container);
    }
    for number in 0..12 {
        let pod = format!("fd{number}");
        let ended = "jsonpath={.status.containerStatuses[0].state.terminated}";
        setting
            .fixture
            .kubectl(&format!("wait --for={ended} pod/{pod} --timeout=60s"));
        let log = setting.fixture.kubectl(&format!("logs {pod}"));
        assert!(
            !log.contains("secret\n") && !log.ends_with("secret"),
            "{pod}: {log}"
        );
    }
    assert_eq!(
        outside("cd /proc/self/fd/3 && cat ./$0 3< /", &["none"]),
        ""
    );
    let script = "exec 3< /; cd /proc/self/fd/3 && cat .$0";
    assert_eq!(outside(script, &[&secret]), "secret");
}

/// The first process of a container can have another root, with a link at `/dev/pts`.
#[tokio::test(flavor = "multi_thread")]
async fn terminal_of_a_session_is_never_one_of_the_host() {
    let Some(setting) = setting(&[]) else { return };
    let evil = "mkdir -p /tmp/evil/dev; ln -s /dev/pts /tmp/evil/dev/pts; \
        exec perl -e 'chroot q(/tmp/evil); sleep 1000'";
    setting.run("evil", "host", &json!({"command": shell(evil)}));
    setting.run("good", "host", &json!({"command": ["sleep", "1000"]}));
    let query = "exec?stdout=true&tty=true&command=stat&command=-Lc&command=%25d&\
        command=/proc/self/fd/1&command=/dev/pts";
    let mut devices = Vec::new();
    for pod in ["good", "evil"] {
        let path = format!("{pod}/{query}");
        let Ok(mut socket) = open(&setting.fixture, &path).await else {
            continue;
        };
        let output = read(&mut socket, 1, "\n\n").await;
        let found: Vec<String> = output.split_whitespace().map(str::to_owned).collect();
        devices.push((pod, found));
    }
    let host = fs::metadata("/dev/pts").unwrap().dev().to_string();
    let (_, good) = &devices[0];
    assert_eq!(good[0], good[1], "{devices:?}");
    assert!(
        devices.iter().all(|(_, found)| !found.contains(&host)),
        "{devices:?}"
    );
}

/// Directories below each other, of which a removal that recurses would exhaust the stack.
#[test]
fn deep_directories_of_a_sandbox_do_not_disturb_the_node() {
    let Some(setting) = setting(&[]) else { return };
    let deepen = "chdir '/v'; for (1..50000) { mkdir 'd'; chdir 'd' or die } \
        open(my $f, '>', 'file') or die; $| = 1; print 'made'; sleep 1000";
    let main = json!({"command": ["perl", "-e", deepen]});
    let more = json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]});
    apply(&setting, "deep", "true", &main, &more);
    setting.ready("deep");
    tests::cli_tools::until("the directories are made", || {
        setting.fixture.kubectl("logs deep") == "made"
    });
    let memory = setting.fixture.state.path().join("node/memory-volumes");
    let memory = PathBuf::from(fs::read_to_string(memory).unwrap());
    let uid = setting
        .fixture
        .kubectl("get pod deep -o jsonpath={.metadata.uid}");
    assert!(memory.join(&uid).exists());
    setting.fixture.kubectl("delete pod deep --timeout=60s");
    tests::cli_tools::until("the directories are gone", || !memory.join(&uid).exists());
    let container = json!({"command": ["echo", "works"]});
    assert_eq!(setting.once("next", "host", &container), "works\n");
}
