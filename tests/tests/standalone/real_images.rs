//! Images of each kind that users have, started by reference with the native executor: Debian, busybox
//! without bash, layers with every oddity, and no shell at all.

use serde_json::json;
use tests::image_archive::{archive, sandbox_archive};
use tests::registry::{LocalRegistry, image_of, image_of_layers, layer_of, odd_layers, small_root};

use crate::fixture::Fixture;
use crate::images::with_registry;

/// Reference of an image, and commands with what they print.
struct Kind {
    image: String,
    commands: &'static [(&'static str, &'static str)],
}

const DEBIAN: &[(&str, &str)] = &[
    (
        ". /etc/os-release && echo $ID; git --version | cut -d' ' -f1,2",
        "debian\ngit version",
    ),
    ("id -un; pwd", "openhands\n/workspace"),
    ("[[ -n $BASH_VERSION ]] && python3 -c 'print(6 * 7)'", "42"),
];
const BUSYBOX: &[(&str, &str)] = &[
    (
        "id -u; pwd; which bash || echo no bash",
        "1000\n/workspace\nno bash",
    ),
    ("x=kept; cd /tmp", ""),
    ("echo $x $PWD $0", "kept /tmp sh"),
];
const ODD: &[(&str, &str)] = &[
    (
        "ls /gone /opaque /deep/er; cat /replaced /twice",
        "/deep/er:\n\n/gone:\n\n/opaque:\nnew\nnow a filesecond",
    ),
    (
        "stat -c '%a %n' /bin/setuid /shared /becomes-directory",
        "4755 /bin/setuid\n2775 /shared\n711 /becomes-directory",
    ),
    ("stat -c '%u:%g %h' /home/user/../../hard", "0:0 2"),
    (
        "cat /unicode/* /long/*/*; ls /fifo",
        "textlong namels: /fifo: No such file or directory",
    ),
];

/// Fills the registry.
fn images(registry: &LocalRegistry) -> Vec<Kind> {
    let mut kinds = Vec::new();
    let mut add = |image, commands| kinds.push(Kind { image, commands });
    if let Some(debian) = sandbox_archive("sandboxes of a Debian image from a registry") {
        add(registry.push_archive(&debian, "debian:12"), DEBIAN);
    }
    add(
        registry.push_archive(&archive("busybox"), "busybox:1"),
        BUSYBOX,
    );
    let mut layers = vec![layer_of(small_root().path())];
    layers.extend(odd_layers());
    let odd = image_of_layers(&layers, &json!({"Cmd": ["/bin/sh"]}));
    add(registry.push(odd.path(), "team/odd:1"), ODD);
    kinds
}

impl Fixture {
    async fn runs(&self, session: &str, kind: &Kind) {
        let sandbox = self.run_image(session, &kind.image).await;
        for (command, output) in kind.commands {
            let image = &kind.image;
            assert_eq!(&sandbox.run(command).await, output, "{image}: {command}");
        }
        sandbox.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_every_kind_run_with_and_without_their_registry() {
    let mut registry = LocalRegistry::start();
    let Some(fixture) = with_registry(&registry) else {
        return;
    };
    let kinds = images(&registry);
    for round in ["first", "second"] {
        for (kind, number) in kinds.iter().zip(1..) {
            fixture.runs(&format!("{round}-{number}"), kind).await;
        }
        registry.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn image_without_shell_serves_files() {
    let registry = LocalRegistry::start();
    let Some(fixture) = with_registry(&registry) else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("program"), "no shell").unwrap();
    let image = registry.push(image_of(root.path(), &json!({})).path(), "distroless:1");
    let sandbox = fixture.run_image("files", &image).await;
    let refused = sandbox.sandbox.run("pwd").await.unwrap_err();
    let missing = "there is no shell in this image: neither bash nor sh was found";
    assert_eq!(refused.to_string(), missing);
    sandbox.write("/workspace/a.txt", "text").await;
    let read = sandbox.sandbox.read("/workspace/a.txt").await.unwrap();
    assert_eq!(read, "text\n");
}
