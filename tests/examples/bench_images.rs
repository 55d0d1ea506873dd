//! Images in standalone: rate and memory of a pull, starts by size of the image, and builds.
//!
//! The references, in the same run, are `skopeo copy`, which downloads without unpacking, `ctr
//! images pull` of containerd, which unpacks as well, and `buildah`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a benchmark may fail")]

#[path = "bench_images/buildah.rs"]
mod buildah;
#[path = "bench_images/builds.rs"]
mod builds;
#[path = "bench_images/code.rs"]
mod code;
#[path = "bench_images/content.rs"]
mod content;
#[path = "bench_images/pulls.rs"]
mod pulls;
#[path = "bench_images/starts.rs"]
mod starts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tests::registry::{LocalRegistry, image_of, small_root};

#[tokio::main]
async fn main() {
    let usage = "usage: bench_images BINARIES [builds]";
    let mut args = std::env::args().skip(1);
    let binaries = PathBuf::from(args.next().expect(usage));
    let registry = LocalRegistry::start();
    match args.next().as_deref() {
        None => pulls_and_starts(&binaries, &registry).await,
        Some("builds") => {}
        Some(_) => panic!("{usage}"),
    }
    builds::compare(&binaries, &registry).await;
}

async fn pulls_and_starts(binaries: &Path, registry: &LocalRegistry) {
    let blobs = content::push_plain(registry, &content::random_files(8, 128 << 20), "blobs:1");
    println!("1 GiB in 8 files that cannot be compressed:");
    drop(pulls::compare(binaries, registry, &blobs));

    let root = content::many_files(100_000, 20 << 10);
    let many = content::push_compressed(registry, &image_of(root.path(), &json!({})), "many:1");
    println!("2 GB in 100 000 files, gzip:");
    let stores = pulls::compare(binaries, registry, &many);

    let small = content::push_plain(registry, &small_root(), "small:1");
    starts::compare(binaries, registry, &small, &many).await;
    drop((root, stores));
}

fn percentile(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort();
    sorted[(sorted.len() - 1) * percent / 100]
}

/// KiB below a directory.
fn disk_use(directory: &Path) -> u64 {
    let output = Command::new("du")
        .args(["-skx"])
        .arg(directory)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}
