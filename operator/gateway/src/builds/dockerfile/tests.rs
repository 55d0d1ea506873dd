use testing::image_build::{Release, Rung, dockerfile};

use super::*;

/// Dockerfiles of four releases.
const SAMPLES: [(Release, Rung, TemplateKind); 10] = [
    (Release::V0_9, Rung::Scratch, TemplateKind::Scratch),
    (Release::V0_9, Rung::Versioned, TemplateKind::Versioned),
    (Release::V0_10, Rung::Scratch, TemplateKind::Scratch),
    (Release::V0_10, Rung::Lock, TemplateKind::Lock),
    (Release::V0_54, Rung::Scratch, TemplateKind::Scratch),
    (Release::V0_54, Rung::Versioned, TemplateKind::Versioned),
    (Release::V0_54, Rung::Lock, TemplateKind::Lock),
    (Release::V0_62, Rung::Scratch, TemplateKind::Scratch),
    (Release::V0_62, Rung::Versioned, TemplateKind::Versioned),
    (Release::V0_62, Rung::Lock, TemplateKind::Lock),
];

fn sample(rung: Rung) -> String {
    dockerfile(Release::V0_62, rung, "BASE_IMAGE")
}

/// The last instruction of clients before those that set up the user.
const END: &str = "# Set up environment for openhands user\n";

#[test]
fn dockerfiles_of_releases_are_recognized_with_any_base_image() {
    for (release, rung, kind) in SAMPLES {
        for base in ["debian:11", "registry.example.com:5000/a/b:1", "a"] {
            let text = dockerfile(release, rung, base);
            let expected = (Some(base.to_owned()), Recognition::Template(kind));
            assert_eq!(recognize(&text), expected, "{}", &text[..60]);
        }
    }
}

#[test]
fn extra_dependencies_are_told_apart() {
    let lock = sample(Rung::Lock);
    assert!(lock.contains(END));
    let with = |lines: &str| lock.replacen(END, &format!("{lines}\n{END}"), 1);
    let rejected = Recognition::ExtraDependencies;
    let extra = with("USER openhands\nRUN pip install numpy");
    assert_eq!(recognize(&extra).1, rejected);
    assert_eq!(recognize(&with("RUN pip install \\\n  numpy")).1, rejected);
    assert_eq!(
        recognize(&with("RUN pip install numpy\nRUN true")).1,
        Recognition::Unknown
    );
}

#[test]
fn changed_dockerfile_is_unknown() {
    let scratch = sample(Rung::Scratch);
    for (from, to) in [
        ("useradd", "adduser"),
        ("MAMBA_ROOT_PREFIX", "mamba_root_prefix"),
        ("apt-get clean", "apt-get  clean"),
    ] {
        let changed = scratch.replace(from, to);
        assert_ne!(changed, scratch);
        let expected = (Some("BASE_IMAGE".to_owned()), Recognition::Unknown);
        assert_eq!(recognize(&changed), expected);
    }
    let twice = format!("{scratch}\nFROM debian:12\n");
    assert_eq!(recognize(&twice).1, Recognition::Unknown);
}

#[test]
fn comments_and_blank_lines_do_not_count() {
    let (lock, kind) = (sample(Rung::Lock), TemplateKind::Lock);
    let noted = lock.replace("RUN \\\n", "# a note\nRUN \\\n\n    # another\n");
    assert_ne!(noted, lock);
    let noted = format!("\n# syntax=x\n{noted}\n\n# end");
    assert_eq!(recognize(&noted).1, Recognition::Template(kind));
}

#[test]
fn dockerfile_without_base_image_is_unknown() {
    for text in [
        "",
        "# FROM a",
        "RUN true",
        "FROM",
        "ARG a\nFROM $a",
        "\\",
        "FROM \\",
    ] {
        assert_eq!(recognize(text).1, Recognition::Unknown, "{text:?}");
    }
}
