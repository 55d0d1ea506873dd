//! Images in standalone: rate and memory of a pull, and starts by size of the image.
//!
//! The references, in the same run, are `skopeo copy`, which downloads without unpacking, and
//! `ctr images pull` of containerd, which unpacks as well.

#![allow(clippy::unwrap_used, reason = "a benchmark may fail")]

#[path = "bench_images/content.rs"]
mod content;
#[path = "bench_images/pulls.rs"]
mod pulls;
#[path = "bench_images/starts.rs"]
mod starts;

use std::path::PathBuf;
use std::time::Duration;

use tests::registry::{LocalRegistry, small_root};

#[tokio::main]
async fn main() {
    let usage = "usage: bench_images BINARIES";
    let binaries = PathBuf::from(std::env::args().nth(1).expect(usage));
    let registry = LocalRegistry::start();
    let blobs = content::push_plain(&registry, &content::random_files(8, 128 << 20), "blobs:1");
    println!("1 GiB in 8 files that cannot be compressed:");
    drop(pulls::compare(&binaries, &registry, &blobs));

    let root = content::many_files(100_000, 20 << 10);
    let many = content::push_compressed(&registry, &root, "many:1");
    println!("2 GB in 100 000 files, gzip:");
    let stores = pulls::compare(&binaries, &registry, &many);

    let small = content::push_plain(&registry, &small_root(), "small:1");
    starts::compare(&binaries, &registry, &small, &many).await;
    drop((root, stores));
}

fn percentile(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort();
    sorted[(sorted.len() - 1) * percent / 100]
}
