//! Ends of a copy, and the name that the copy gets.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    Local(PathBuf),
    Remote { name: String, path: String },
}

/// State of the path that is copied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    Directory,
    Other,
    Nothing,
}

/// Place of a copy: a directory, and the name of the copy in it. Without a name the content of the
/// source comes into the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) directory: String,
    pub(crate) name: Option<String>,
}

impl Location {
    /// `NAME:PATH` is in a sandbox. A local path with a colon begins with `./` or `/`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let remote = match text.split_once(':') {
            Some((name, path)) if !name.contains('/') && !name.starts_with('.') => {
                Some((name, path))
            }
            _ => None,
        };
        match remote {
            None if text.is_empty() => {
                Err(Failure::Usage("a path to copy must not be empty".into()))
            }
            None => Ok(Self::Local(text.into())),
            Some((name, path)) if name.is_empty() || path.is_empty() || path.contains('\0') => {
                Err(Failure::Usage(format!(
                    "{text:?} is not a place in a sandbox (example: my-session:/workspace/file)"
                )))
            }
            Some((name, path)) => Ok(Self::Remote {
                name: name.into(),
                path: path.into(),
            }),
        }
    }
}

/// Parent and last part of a source. `dir/.` and `/` have no last part: their content is copied.
pub(crate) fn split_source(path: &str) -> (String, Option<String>) {
    let whole = || (path.to_owned(), None);
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() {
        return ("/".into(), None);
    }
    let (parent, last) = match trimmed.rsplit_once('/') {
        Some(("", last)) => ("/", last),
        Some((parent, last)) => (parent, last),
        None => (".", trimmed),
    };
    match last {
        "." | ".." => whole(),
        last => (parent.into(), Some(last.into())),
    }
}

/// Decides as `cp -r` does: into a directory that exists or ends in a slash, else under the name of the
/// target.
pub(crate) fn place(
    target: &str,
    existing: Existing,
    source: Option<&str>,
    is_source_tree: bool,
) -> Result<Place, Failure> {
    if existing == Existing::Other && is_source_tree {
        return Err(Failure::Usage(format!(
            "{target} is a file, and a directory cannot be copied over it"
        )));
    }
    if source.is_none() || existing == Existing::Directory || target.ends_with('/') {
        return Ok(Place {
            directory: target.into(),
            name: source.map(Into::into),
        });
    }
    let (directory, name) = split_source(target);
    Ok(Place { directory, name })
}

/// State of a local path.
pub(crate) fn existing(path: &Path) -> Existing {
    match path.metadata() {
        Ok(found) if found.is_dir() => Existing::Directory,
        Ok(_) => Existing::Other,
        // A link that leads nowhere is replaced.
        Err(_) => Existing::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_sandboxes_have_a_colon() {
        let remote = |name: &str, path: &str| Location::Remote {
            name: name.into(),
            path: path.into(),
        };
        assert_eq!(Location::parse("box:/a:b").unwrap(), remote("box", "/a:b"));
        assert_eq!(Location::parse("box:a").unwrap(), remote("box", "a"));
        for local in ["a", "./a:b", "/a:b", "a/b:c", "../a:b"] {
            assert_eq!(
                Location::parse(local).unwrap(),
                Location::Local(local.into())
            );
        }
        for invalid in ["", ":", "box:", ":/a"] {
            assert!(Location::parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn sources_are_split_at_their_last_part() {
        let split = |path: &str| split_source(path);
        assert_eq!(split("/a/b"), ("/a".into(), Some("b".into())));
        assert_eq!(split("/a/b/"), ("/a".into(), Some("b".into())));
        assert_eq!(split("/a"), ("/".into(), Some("a".into())));
        assert_eq!(split("a"), (".".into(), Some("a".into())));
        assert_eq!(split("-a b"), (".".into(), Some("-a b".into())));
        for content in ["/a/.", "..", "."] {
            assert_eq!(split(content), (content.into(), None));
        }
        assert_eq!(split("/"), ("/".into(), None));
    }

    #[test]
    fn copies_are_placed_as_by_cp() {
        let is_at = |target: &str, existing, source, directory: &str, name: Option<&str>| {
            let expected = Place {
                directory: directory.into(),
                name: name.map(Into::into),
            };
            assert_eq!(
                place(target, existing, source, true).unwrap(),
                expected,
                "{target}"
            );
        };
        is_at("/d", Existing::Directory, Some("s"), "/d", Some("s"));
        is_at("/d/n", Existing::Nothing, Some("s"), "/d", Some("n"));
        is_at("/d/n/", Existing::Nothing, Some("s"), "/d/n/", Some("s"));
        is_at("/d/n", Existing::Nothing, None, "/d/n", None);
        is_at("n", Existing::Nothing, Some("s"), ".", Some("n"));
        assert!(place("/f", Existing::Other, Some("s"), true).is_err());
        assert!(place("/f", Existing::Other, Some("s"), false).is_ok());
    }
}
