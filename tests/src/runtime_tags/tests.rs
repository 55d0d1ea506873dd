//! Values that the client computed, and tags that its users published.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::{TempDir, tempdir};

use super::*;

const NIKOLAIK: &str = "nikolaik/python-nodejs:python3.12-nodejs22";
const DJANGO: &str = "docker.io/swebench/sweb.eval.x86_64.django_1776_django-11039:latest";

fn bytes(hex: &str) -> [u8; 16] {
    let bytes = data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap();
    bytes.try_into().unwrap()
}

#[test]
fn hash_is_shortened_to_low_digits_in_reverse() {
    for (md5, short) in [
        ("00000000000000000000000000000000", ""),
        ("00000000000000000000000000000001", "1"),
        ("00000000000000000000000000000024", "01"),
        ("ffffffffffffffffffffffffffffffff", "33psmzhlgqnyronp"),
        ("d41d8cd98f00b204e9800998ecf8427e", "uc3mgirxygs0uf85"),
        ("1f69bd20d68d9e3874d5bf7f7459709b", "bozkz3djf2bkxrcq"),
        ("b08f254d76b1c6a7ad924708c0032251", "pma2wc71uq3c9a85"),
        ("102aecc0cea025253c0278f54ebef078", "4titk6gquia3taj5"),
        ("7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f7f", "7izrzkg7dxeg54xo"),
        // A clean checkout of the client.
        ("90472858528b6d5bfe6fe71de7c080c9", "tn3hksxzqrips7lk"),
    ] {
        assert_eq!(shorten(bytes(md5)), short, "{md5}");
    }
}

#[test]
fn lock_hash_covers_base_browser_and_lock_files() {
    for (base, browser, pyproject, lock, md5_hex, short) in [
        (
            "some_base_image",
            true,
            "mock-data",
            "mock-data",
            "af21c653c80189d17e9bd5b7a796450e",
            "y30qicsghn63hkb8",
        ),
        (
            "some_base_image",
            false,
            "mock-data",
            "mock-data",
            "c71727acab5bdaa6bfe9ba749ea9647b",
            "3irxziledg1zx8pn",
        ),
        (
            "debian:11",
            true,
            "",
            "",
            "789f6d0a0e4404b0bcbe4cc6c407138a",
            "y6tjxesy0b4ckqub",
        ),
        (
            "debian:11",
            false,
            "",
            "",
            "478b12d94b173eb85bc0e1dc7fd1598b",
            "zq852vo4eodnkcj9",
        ),
        (
            "DEBIAN:11",
            true,
            "",
            "",
            "53cd6e79ca944af717e70fed8a10f21c",
            "wrnjbae31g19l8yb",
        ),
        (
            "ubuntu:24.04",
            true,
            "[p]\n",
            "lock\n",
            "c124d8e189bc1bf77ad7b3692d54722f",
            "z3uvkty2ku1xn0mw",
        ),
        (
            NIKOLAIK,
            true,
            "[p]\n",
            "lock\n",
            "519c9e42ae44d0d857448d47e76e9ba4",
            "cee7jp6os74rw8yt",
        ),
        (
            NIKOLAIK,
            false,
            "[p]\n",
            "lock\n",
            "d30a403a21c8a0b257bc4da6d3b44935",
            "hx49wubj6ogruqi1",
        ),
    ] {
        let hashed = lock_hash(base, browser, pyproject.as_bytes(), lock.as_bytes());
        assert_eq!(hashed, short, "{base}, browser {browser}");
        assert_eq!(shorten(bytes(md5_hex)), short);
    }
}

#[test]
fn version_tag_names_the_end_of_the_base_image() {
    let long = "registry.example.com/some-organisation/some-team/some-really-long-project-name/\
        some-image-name-that-is-long:release-2025.11.28-build.12345";
    let digest = format!("debian@sha256:{}", "ab".repeat(32));
    let digest_tag = format!("debian@sha256_t_{}", "ab".repeat(32));
    let (many, cut) = (
        format!("{}:1", "a".repeat(200)),
        format!("{}_t_1", "a".repeat(92)),
    );
    for (base, tag) in [
        ("ubuntu", "ubuntu"),
        ("ubuntu:24.04", "ubuntu_t_24.04"),
        (NIKOLAIK, "nikolaik_s_python-nodejs_t_python3.12-nodejs22"),
        (
            DJANGO,
            "docker.io_s_swebench_s_sweb.eval.x86_64.django_1776_django-11039_t_latest",
        ),
        ("MyOrg/MyImage:V1.0", "myorg_s_myimage_t_v1.0"),
        ("localhost:5000/app:1", "localhost_t_5000_s_app_t_1"),
        (&digest, &digest_tag),
        (
            long,
            "_s_some-really-long-project-name_s_some-image-name-that-is-long_t_release-\
             2025.11.28-build.12345",
        ),
        (&many, &cut),
    ] {
        let tag = format!("oh_v0.62.0_{tag}");
        assert_eq!(version_tag("0.62.0", base), tag, "{base}");
    }
}

#[test]
fn generic_tag_hashes_what_is_too_long() {
    let (a32, a33) = ("a".repeat(32), "a".repeat(33));
    let (fits, too_long) = ("t".repeat(105), "t".repeat(106));
    for (base, tag) in [
        ("debian:11".to_owned(), "debian_tag_11".to_owned()),
        ("ubuntu".into(), "ubuntu_tag_latest".into()),
        (
            NIKOLAIK.into(),
            "nikolaik_s_python-nodejs_tag_python3.12-nodejs22".into(),
        ),
        (format!("{a32}:1"), format!("{a32}_tag_1")),
        (
            format!("{a33}:1"),
            "552e6a97_aaaaaaaaaaaaaaaaaaaaaaaa_tag_1".into(),
        ),
        (
            "registry.example.com/team/project/subproject/app:1".into(),
            "bf16bfe6_m_s_project_s_subproject_s_app_tag_1".into(),
        ),
        (
            DJANGO.into(),
            "b9b34bc8_django_1776_django-11039_tag_latest".into(),
        ),
        (format!("x:{fits}"), format!("x_tag_{fits}")),
        (
            format!("x:{too_long}"),
            "0fd1c1f83a6119467e0ec0a13db65ec1".into(),
        ),
    ] {
        let tag = format!("oh_v0.62.0_image_{tag}");
        assert_eq!(generic_tag("0.62.0", &base), tag, "{base}");
    }
}

/// A directory with these files.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempdir().unwrap();
    add(root.path(), files);
    root
}

fn add(root: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[track_caller]
fn assert_source(root: &Path, md5_hex: &str, short: &str) {
    assert_eq!(hex(directory_hash(root).unwrap()), md5_hex);
    assert_eq!(source_hash(root).unwrap(), short);
}

const PACKAGE: [(&str, &str); 3] = [
    ("pkg/__init__.py", ""),
    ("pkg/m.py", "x = 1\n"),
    ("README.md", "# hi\n"),
];
const PACKAGE_HASH: (&str, &str) = ("eeacc9110b12b09b874a367bcf187287", "39kclzyzuwbdsveg");

#[test]
fn source_hash_covers_names_and_contents() {
    let root = tree(&[("a.txt", "hello")]);
    let one = ("2ecccf550ad23603332b5c44475dd564", "833blvyzzfwjad1b");
    assert_source(root.path(), one.0, one.1);
    add(root.path(), &[("b.txt", "")]);
    let two = ("261e83e13aec7845d1150346f0260c5e", "mm30akifcw5jldw5");
    assert_source(root.path(), two.0, two.1);
    let package = tree(&PACKAGE);
    assert_source(package.path(), PACKAGE_HASH.0, PACKAGE_HASH.1);
    let inner = directory_hash(&package.path().join("pkg")).unwrap();
    assert_eq!(hex(inner), "8edd248007638902816a70821e1424aa");
    let same = tree(&[("d1/f", "same"), ("d2/f", "same")]);
    let twice = ("fd8c97ebdb998ce225316953ee1d4df9", "tzbdgclf8ww0hz55");
    assert_source(same.path(), twice.0, twice.1);
    let names = tree(&[("Ü/ß.txt", "naïve"), ("z", "1"), ("A", "2"), ("a", "3")]);
    let sorted = ("765ddb8aa81203c135ea9d1845511606", "60wc51yovi9o8hjo");
    assert_source(names.path(), sorted.0, sorted.1);
}

#[test]
fn source_hash_leaves_out_hidden_directories_and_caches() {
    let root = tree(&PACKAGE);
    let cached = "pkg/__pycache__/m.cpython-312.pyc";
    add(
        root.path(),
        &[
            (".git/config", "x"),
            (cached, "x"),
            ("pkg/m.pyc", "x"),
            ("only/z.pyc", "x"),
        ],
    );
    fs::create_dir(root.path().join("empty")).unwrap();
    assert_source(root.path(), PACKAGE_HASH.0, PACKAGE_HASH.1);
    for (file, md5_hex, short) in [
        (
            ".env",
            "c69e46869ca598c92d48009f9d7e8f7e",
            "m2isxpw63en71hvj",
        ),
        (
            "pkg/.hidden",
            "a534f4b51589f75b69adfcc00c6de333",
            "fl383rfo0tr4lhee",
        ),
    ] {
        let with = tree(&PACKAGE);
        add(with.path(), &[(file, "A=1\n")]);
        assert_source(with.path(), md5_hex, short);
    }
    assert!(directory_hash(tree(&[("a.pyc", "x")]).path()).is_err());
}

#[test]
fn source_hash_follows_links() {
    let linked = ("e1981e75d4b147620fe004da3eb4c072", "6n7ny2lt2bi4hjp0");
    let root = tree(&[("real/f.py", "1\n")]);
    symlink("real/f.py", root.path().join("link.py")).unwrap();
    symlink("real", root.path().join("ldir")).unwrap();
    symlink("absent", root.path().join("broken")).unwrap();
    assert_source(root.path(), linked.0, linked.1);
    let plain = tree(&[
        ("real/f.py", "1\n"),
        ("link.py", "1\n"),
        ("ldir/f.py", "1\n"),
    ]);
    assert_source(plain.path(), linked.0, linked.1);
    symlink("..", root.path().join("real/up")).unwrap();
    assert!(directory_hash(root.path()).is_err());
}

#[test]
fn tags_of_an_image_share_version_and_lock_hash() {
    // The default image of one commit.
    let tags = RuntimeTags::new("0.62.0", NIKOLAIK, "rfgqc2dfh0uu1w9e", "tn3hksxzqrips7lk");
    assert_eq!(tags.source, "oh_v0.62.0_rfgqc2dfh0uu1w9e_tn3hksxzqrips7lk");
    assert_eq!(tags.lock, "oh_v0.62.0_rfgqc2dfh0uu1w9e");
    assert_eq!(tags.version, version_tag("0.62.0", NIKOLAIK));
}
