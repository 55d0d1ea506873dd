//! Paths of archive entries and targets of links, which must stay inside of the archive.

/// Normal form of a relative path, with `/` and without `.`; the root is empty. `None` if the path
/// is absolute or leads outside.
pub(super) fn normalize(path: &[u8]) -> Option<Vec<u8>> {
    resolve(&[], path)
}

/// As [`normalize`], for the target of a symbolic link at `link`, a path in normal form.
pub(super) fn resolve_link(link: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let parent = link.rsplitn(2, |byte| *byte == b'/').nth(1);
    resolve(parent.unwrap_or_default(), target)
}

fn resolve(directory: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    if path.is_empty() || path.starts_with(b"/") || path.contains(&0) {
        return None;
    }
    let slash = |byte: &u8| *byte == b'/';
    let mut parts: Vec<&[u8]> = directory.split(slash).collect();
    parts.retain(|part| !part.is_empty());
    for part in path.split(slash) {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_normalized_or_rejected() {
        for (path, normal) in [
            (".", Some("")),
            ("./", Some("")),
            ("./Dockerfile", Some("Dockerfile")),
            ("code//a/./b/", Some("code/a/b")),
            ("a/../b", Some("b")),
            ("", None),
            ("/etc", None),
            ("..", None),
            ("a/../../b", None),
            ("a\0b", None),
        ] {
            let normalized = normalize(path.as_bytes());
            let expected = normal.map(|normal| normal.as_bytes().to_vec());
            assert_eq!(normalized, expected, "{path:?}");
        }
    }

    #[test]
    fn link_is_resolved_from_its_directory() {
        for (link, target, inside) in [
            ("a/b/link", "../c", Some("a/c")),
            ("link", "a", Some("a")),
            ("link", "../a", None),
            ("a/link", "../../b", None),
            ("a/link", "/etc/passwd", None),
        ] {
            let resolved = resolve_link(link.as_bytes(), target.as_bytes());
            let expected = inside.map(|inside| inside.as_bytes().to_vec());
            assert_eq!(resolved, expected, "{link} to {target}");
        }
    }
}
