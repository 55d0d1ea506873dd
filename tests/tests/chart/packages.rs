//! Files of a release that `hack/package` fills in and packs: versions, the manifest for krew, images of two architectures.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use tests::cli_tools::{helm, run_checked, text};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// First bytes of programs, up to the field that names the architecture.
const PROGRAMS: [(&str, [u8; 2]); 2] = [("amd64", [0x3e, 0]), ("arm64", [0xb7, 0])];

#[test]
fn files_of_a_release_have_the_version_of_the_workspace() {
    for chart in ["sandbox-operator", "sandbox-operator-crds"] {
        let chart = text(&format!("charts/{chart}/Chart.yaml"));
        assert!(chart.contains(&format!("\nversion: {VERSION}\n")));
        assert!(chart.contains(&format!("\nappVersion: \"{VERSION}\"\n")));
    }
    let label = format!("org.opencontainers.image.version=\"{VERSION}\"");
    assert_eq!(text("Dockerfile").matches(&label).count(), 2);
    let krew = text("client/cli/krew.yaml");
    assert!(krew.contains(&format!("\n  version: v{VERSION}\n")));
}

#[test]
fn manifest_for_krew_has_the_names_that_the_package_replaces() {
    let krew: Value = serde_yaml::from_str(&text("client/cli/krew.yaml")).unwrap();
    assert_eq!(krew["metadata"]["name"], "sandbox");
    let platforms = krew["spec"]["platforms"].as_array().unwrap();
    let arches: Vec<_> = platforms
        .iter()
        .map(|platform| {
            let labels = &platform["selector"]["matchLabels"];
            let arch = labels["arch"].as_str().unwrap();
            let suffix = format!("LINUX_{}", arch.to_uppercase());
            assert_eq!(labels["os"], "linux");
            assert_eq!(platform["uri"], format!("ARCHIVE_{suffix}"));
            assert_eq!(platform["sha256"], format!("CHECKSUM_{suffix}"));
            assert_eq!(platform["bin"], "kubectl-sandbox");
            arch
        })
        .collect();
    assert_eq!(arches, PROGRAMS.map(|(arch, _)| arch));
}

/// Two programs that are nothing but headers, in one archive: an index names both, by the architecture of each.
#[test]
fn images_of_two_architectures_are_one_archive() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut words = vec!["index".to_owned(), "localhost/x:1".to_owned(), path("both")];
    for (arch, machine) in PROGRAMS {
        let program = path(&format!("{arch}-program"));
        fs::write(&program, [&[0; 18][..], &machine].concat()).unwrap();
        let image = path(arch);
        run_checked("hack/image", &["executor", &program, &image]);
        words.push(image);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run_checked("hack/image", &words);

    let files = files(Path::new(&path("both")));
    let index = blob(&files, &parse(&files["index.json"])["manifests"][0]);
    let manifests = index["manifests"].as_array().unwrap();
    assert_eq!(manifests.len(), PROGRAMS.len());
    for (descriptor, (arch, machine)) in manifests.iter().zip(PROGRAMS) {
        assert_eq!(descriptor["platform"]["architecture"], arch);
        let manifest = blob(&files, descriptor);
        let config = blob(&files, &manifest["config"]);
        assert_eq!(config["architecture"], arch);
        assert_eq!(config["config"]["User"], "65532:65532");
        let layer = bytes(&files, &manifest["layers"][0]);
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(layer)
            .read_to_end(&mut unpacked)
            .unwrap();
        let diff = format!("sha256:{}", sha256(&unpacked));
        assert_eq!(config["rootfs"]["diff_ids"][0], diff);
        assert!(unpacked.windows(2).any(|bytes| bytes == machine));
    }
}

/// `hack/package` with such programs: every file has its checksum, also in the manifest for krew. Needs Helm.
pub(crate) fn the_package_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    for (arch, machine) in PROGRAMS {
        let programs = folder.path().join("programs").join(arch);
        fs::create_dir_all(&programs).unwrap();
        for name in ["operator", "executor", "standalone"] {
            let program = programs.join(format!("sandbox-{name}"));
            fs::write(program, [&[0; 18][..], &machine].concat()).unwrap();
        }
        fs::write(programs.join("sandbox"), machine).unwrap();
    }
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (programs, out) = (format!("PROGRAMS={}", path("programs")), path("out"));
    let url = "https://example.com/releases";
    let variables = [&programs, &format!("URL={url}"), "PROFILE=", "VERSION="];
    run_checked(
        "env",
        &[&variables[..], &["hack/package", &out][..]].concat(),
    );

    let read = |name: &str| fs::read(Path::new(&out).join(name)).unwrap();
    let sums = String::from_utf8(read("SHA256SUMS")).unwrap();
    let sums: BTreeMap<&str, &str> = sums
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(sum, name)| (name, sum))
        .collect();
    // Charts, archives of five names, images, bills of materials, and the manifest.
    assert_eq!(sums.len(), 2 + 5 * PROGRAMS.len() + 2 + 4 + 1);
    for (name, sum) in &sums {
        assert_eq!(sha256(&read(name)), *sum, "{name}");
    }
    for (program, parts, absent) in [
        ("sandbox-operator", ["kube", "preact"], "pdfjs-dist"),
        ("sandbox-executor", ["tokio", "pdfjs-dist"], "preact"),
        ("sandbox-standalone", ["rusqlite", "preact"], "pdfjs-dist"),
        ("sandbox", ["clap", "indicatif"], "preact"),
    ] {
        let bill = parse(&read(&format!("{program}-{VERSION}.spdx.json")));
        let packages = bill["packages"].as_array().unwrap();
        let has = |name: &str| packages.iter().any(|package| package["name"] == name);
        assert!(
            parts.into_iter().all(has) && !has(absent),
            "{program}: {packages:?}"
        );
    }
    let krew: Value = serde_yaml::from_slice(&read("krew.yaml")).unwrap();
    for platform in krew["spec"]["platforms"].as_array().unwrap() {
        let uri = platform["uri"].as_str().unwrap();
        let archive = uri.strip_prefix(url).unwrap().trim_start_matches('/');
        assert_eq!(platform["sha256"], sums[archive]);
    }
    let plugin = path(&format!("out/kubectl-sandbox-{VERSION}-linux-amd64.tar.gz"));
    let expected = "LICENSE\nkubectl-sandbox\nkubectl_complete-sandbox\n";
    assert_eq!(run_checked("tar", &["-tzf", &plugin]), expected);
    let chart = path(&format!("out/sandbox-operator-{VERSION}.tgz"));
    assert!(helm(&["show", "chart", &chart]).contains("name: sandbox-operator\n"));
}

fn files(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(fs::File::open(archive).unwrap());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (name, content)
    });
    entries.collect()
}

/// The content that a descriptor names; its digest and size are right.
fn bytes<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let digest = descriptor["digest"].as_str().unwrap();
    let hex = digest.strip_prefix("sha256:").unwrap();
    let content = &files[&format!("blobs/sha256/{hex}")];
    assert_eq!(sha256(content), hex);
    assert_eq!(descriptor["size"], content.len());
    content
}

fn blob(files: &BTreeMap<String, Vec<u8>>, descriptor: &Value) -> Value {
    parse(bytes(files, descriptor))
}

fn parse(content: &[u8]) -> Value {
    serde_json::from_slice(content).unwrap()
}

fn sha256(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    data_encoding::HEXLOWER.encode(digest.as_ref())
}
