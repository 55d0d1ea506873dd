//! Images of this benchmark.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;
use tests::registry::{LocalRegistry, image_of, image_of_layers, layer_of, small_root};

const FILES_PER_DIRECTORY: usize = 1000;

/// Files of random bytes.
pub(crate) fn random_files(count: usize, size: u64) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for number in 0..count {
        let mut random = File::open("/dev/urandom").unwrap().take(size);
        let mut file = File::create(root.path().join(number.to_string())).unwrap();
        io::copy(&mut random, &mut file).unwrap();
    }
    root
}

/// The small root with this many files in `data`, the half of each of them random.
pub(crate) fn many_files(count: usize, size: usize) -> TempDir {
    let root = small_root();
    let mut random = File::open("/dev/urandom").unwrap();
    let mut bytes = vec![b' '; size];
    for number in 0..count {
        let directory = root
            .path()
            .join(format!("data/{}", number / FILES_PER_DIRECTORY));
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory).unwrap();
        }
        random.read_exact(&mut bytes[..size / 2]).unwrap();
        let mut file = File::create(directory.join(number.to_string())).unwrap();
        file.write_all(&bytes).unwrap();
    }
    root
}

/// OCI layout of an image with this many layers, each as [`many_files`] in a directory of its own.
pub(crate) fn image_of_many_files(layers: usize, files: usize, size: usize) -> TempDir {
    let layer = |number: usize| {
        let root = many_files(files, size);
        let directory = root.path().join("data");
        fs::rename(
            &directory,
            directory.with_file_name(format!("data-{number}")),
        )
        .unwrap();
        layer_of(root.path())
    };
    let layers: Vec<_> = (0..layers).map(layer).collect();
    image_of_layers(&layers, &json!({"Env": ["PATH=/bin"]}))
}

/// Adds an image with one uncompressed layer; its reference.
pub(crate) fn push_plain(registry: &LocalRegistry, root: &TempDir, name: &str) -> String {
    registry.push(image_of(root.path(), &json!({})).path(), name)
}

/// Adds the image of an OCI layout, whose layers skopeo compresses; its reference.
pub(crate) fn push_compressed(registry: &LocalRegistry, layout: &TempDir, name: &str) -> String {
    let reference = format!("{}/{name}", registry.host());
    let source = format!("oci:{}", layout.path().display());
    copy(&[
        "--dest-tls-verify=false",
        &source,
        &format!("docker://{reference}"),
    ]);
    reference
}

/// Downloads an image to an OCI layout without unpacking it.
pub(crate) fn download(reference: &str, into: &Path) {
    let target = format!("oci:{}", into.display());
    copy(&[
        "--src-tls-verify=false",
        &format!("docker://{reference}"),
        &target,
    ]);
}

fn copy(args: &[&str]) {
    let output = Command::new("skopeo").arg("copy").args(args).output();
    let output = output.expect("skopeo, of hack/install");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "skopeo: {errors}");
}
