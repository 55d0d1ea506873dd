//! Checks of entry names and link targets.

/// Returns the components of an entry's name, or `None` if the name is absolute or leads upwards.
pub(super) fn parts(name: &str) -> Option<Vec<&str>> {
    if name.starts_with('/') || name.contains('\0') {
        return None;
    }
    let parts = components(name);
    (!parts.is_empty() && !parts.contains(&"..")).then_some(parts)
}

/// Returns whether a link in a directory at `depth` stays in the destination. `..` is allowed only
/// at the beginning, where the path cannot cross another link.
pub(super) fn stays_inside(target: &str, depth: usize) -> bool {
    if target.is_empty() || target.starts_with('/') || target.contains('\0') {
        return false;
    }
    let parts = components(target);
    let up = parts.iter().take_while(|part| **part == "..").count();
    up <= depth && !parts[up..].contains(&"..")
}

fn components(path: &str) -> Vec<&str> {
    let parts = path.split('/');
    parts
        .filter(|part| !part.is_empty() && *part != ".")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_rejects_absolute_and_parent_names() {
        for name in [
            "/etc/passwd",
            "../x",
            "a/../x",
            "a/..",
            "..",
            "",
            "./",
            "a\0b",
            "//x",
        ] {
            assert_eq!(parts(name), None, "{name}");
        }
        assert_eq!(parts("a//b/./c").unwrap(), ["a", "b", "c"]);
        assert_eq!(parts("a..b/...").unwrap(), ["a..b", "..."]);
    }

    #[test]
    fn stays_inside_rejects_targets_outside() {
        for (target, depth, stays) in [
            ("a", 0, true),
            ("../a", 1, true),
            ("../a", 0, false),
            ("../../a", 1, false),
            ("a/../b", 5, false),
            ("/a", 9, false),
            ("", 0, false),
            ("..", 1, true),
            (".", 0, true),
        ] {
            assert_eq!(stays_inside(target, depth), stays, "{target}");
        }
    }
}
