//! Image builds through the runtime API of standalone, beside `buildah`, which makes the image of an
//! appended build and pushes it to the same registry. Every build has other code.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use client::Client;
use serde_json::json;
use tempfile::TempDir;
use testing::image_build::{self, Release, Rung};
use tests::image_archive::archive;
use tests::registry::LocalRegistry;
use tests::standalone::Standalone;
use tokio::time::Instant;

use crate::buildah::Buildah;
use crate::code::Code;
use crate::{content, disk_use, percentile};

const ROUNDS: u64 = 10;
const BUILDER: &str = "localhost/buildkit:1";
/// Layers of the parent, files of a layer, bytes of a file: 128 MB each, the half after compression.
const PARENT: (usize, usize, usize) = (3, 4000, 32 << 10);
const PARENT_TAG: &str = "oh_v0.62.0_cee7jp6os74rw8yt";

/// Prints times and the growth of the registry.
pub(crate) async fn compare(binaries: &Path, registry: &LocalRegistry) {
    let (layers, files, size) = PARENT;
    let layout = content::image_of_many_files(layers, files, size);
    let parent = format!("team/runtime:{PARENT_TAG}");
    let parent = content::push_compressed(registry, &layout, &parent);
    println!("image builds, {ROUNDS} rounds, parent of {layers} layers with 128 MB each:");
    let server = Server::start(binaries, registry);
    let dockerfile = |rung| image_build::dockerfile(Release::V0_62, rung, &parent);
    let trivial = format!("FROM {parent}\nRUN true\nCOPY code /openhands/code\n");
    for (name, dockerfile) in [
        ("alias", dockerfile(Rung::Scratch)),
        ("append", dockerfile(Rung::Lock)),
        ("full", trivial),
    ] {
        let mut row = Row::begin(registry, name);
        for _ in 0..ROUNDS {
            let (code, target) = row.next_build();
            row.samples
                .push(server.build(&code.context(&dockerfile), &target).await);
        }
        row.print();
    }
    let copy = format!("FROM {parent}\nCOPY code /openhands/code\n");
    buildah(registry, &copy, &parent);
}

/// Builds with the parent in the store, and without; the stores are deleted at the end.
fn buildah(registry: &LocalRegistry, dockerfile: &str, parent: &str) {
    let filled = Buildah::new();
    filled.pull(parent);
    let mut kept = Vec::new();
    let mut row = Row::begin(registry, "buildah, parent in its store");
    for _ in 0..ROUNDS {
        row.time_buildah(&filled, dockerfile);
    }
    row.print();
    let mut row = Row::begin(registry, "buildah, parent not in its store");
    for _ in 0..ROUNDS {
        let empty = Buildah::new();
        row.time_buildah(&empty, dockerfile);
        kept.push(empty);
    }
    row.print();
}

/// Builds of one kind.
struct Row<'a> {
    registry: &'a LocalRegistry,
    name: &'static str,
    /// KiB of the registry before.
    before: u64,
    samples: Vec<Duration>,
}

impl<'a> Row<'a> {
    fn begin(registry: &'a LocalRegistry, name: &'static str) -> Self {
        Self {
            registry,
            name,
            before: disk_use(registry.directory()),
            samples: Vec::new(),
        }
    }

    /// Code and target of the next build.
    fn next_build(&self) -> (Code, String) {
        let name: String = self.name.split([' ', ',']).collect();
        let tag = format!("{PARENT_TAG}_{name}{}", self.samples.len());
        let mix = |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
        let seed = tag.bytes().fold(0, mix);
        let target = format!("{}/team/runtime:{tag}", self.registry.host());
        (Code::new(seed), target)
    }

    fn time_buildah(&mut self, buildah: &Buildah, dockerfile: &str) {
        let (code, target) = self.next_build();
        let context = tempfile::tempdir().unwrap();
        code.write(dockerfile, context.path());
        let begin = Instant::now();
        buildah.build_and_push(context.path(), &target);
        self.samples.push(begin.elapsed());
    }

    fn print(&self) {
        let added = disk_use(self.registry.directory()) - self.before;
        println!(
            "  {}: p50 {:.1?}, max {:.1?}, {} KiB added to the registry by each",
            self.name,
            percentile(&self.samples, 50),
            percentile(&self.samples, 100),
            added / ROUNDS
        );
    }
}

/// A standalone with all modes of builds.
struct Server {
    client: Client,
    _standalone: Standalone,
    _state: TempDir,
}

impl Server {
    fn start(binaries: &Path, registry: &LocalRegistry) -> Self {
        let state = tempfile::tempdir().unwrap();
        let (host, prefix) = (registry.host(), format!("{}/team", registry.host()));
        let config = state.path().join("registries.json");
        std::fs::write(&config, json!({"auths": {&host: {}}}).to_string()).unwrap();
        let program = binaries.join("sandbox-standalone");
        let flags = [
            ["--image-builds", "full"],
            ["--registry-prefix", &prefix],
            ["--insecure-registries", &host],
            ["--registry-config", config.to_str().unwrap()],
            ["--builder-image", BUILDER],
        ];
        let standalone = Standalone::start_binary(&program, state.path(), &flags.concat());
        let loaded = Command::new(program)
            .arg("--state-dir")
            .arg(state.path())
            .args(["images", "load"])
            .arg(archive("buildkit"))
            .output()
            .unwrap();
        assert!(loaded.status.success(), "{loaded:?}");
        Self {
            client: tests::session::client(standalone.api(), standalone.key()),
            _standalone: standalone,
            _state: state,
        }
    }

    /// Time from `POST /build` to the end that `/build_status` tells.
    async fn build(&self, context: &[u8], target: &str) -> Duration {
        let begin = Instant::now();
        let id = self.client.build(context, target, &[]).await.unwrap();
        let end = self.client.wait_build(&id, &mut |_| ()).await.unwrap();
        assert_eq!(end.status, "SUCCESS", "{end:?}");
        begin.elapsed()
    }
}
