//! Dockerfiles of clients. One that a released client rendered is recognized by a hash of what is
//! left without its base image; `hack/templates` makes the table of hashes.

use std::collections::HashMap;
use std::sync::LazyLock;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

/// Kinds of the Dockerfiles of released clients, by hash.
static TEMPLATES: LazyLock<HashMap<&str, TemplateKind>> = LazyLock::new(|| {
    include_str!("templates.txt")
        .lines()
        .filter_map(template)
        .collect()
});

/// Instructions at the end of a Dockerfile among which extra dependencies are looked for.
const MAX_SEARCHED: usize = 8;

/// Ways in which clients make an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemplateKind {
    /// From any base image.
    Scratch,
    /// From a runtime image with other lock files.
    Versioned,
    /// From a runtime image with the same lock files: only the client's program is newer.
    Lock,
}

/// Recognition of a Dockerfile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recognition {
    Template(TemplateKind),
    /// A template with one more instruction: `runtime_extra_deps`.
    ExtraDependencies,
    Unknown,
}

fn template(line: &str) -> Option<(&str, TemplateKind)> {
    let mut words = line.split(' ');
    let (hash, kind) = (words.next()?, words.next()?);
    let kind = match kind {
        "scratch" => TemplateKind::Scratch,
        "versioned" => TemplateKind::Versioned,
        "lock" => TemplateKind::Lock,
        _ => return None,
    };
    Some((hash, kind))
}

/// Recognizes a Dockerfile, and returns the base image that it names.
pub(super) fn recognize(text: &str) -> (Option<String>, Recognition) {
    let mut lines = instructions(text);
    let first = lines.first().and_then(|line| line.strip_prefix("FROM "));
    let Some(base) = first.map(|base| base.trim().to_owned()) else {
        return (None, Recognition::Unknown);
    };
    "FROM BASE".clone_into(&mut lines[0]);
    // Releases from 0.55 on compare it in a shell script.
    let (compared, placeholder) = (format!("\"{base}\" =="), "\"BASE\" ==");
    for line in &mut lines {
        *line = line.replace(&compared, placeholder);
    }
    let known = TEMPLATES.get(&*hash(&lines)).copied();
    let recognition = match known.map(Recognition::Template) {
        Some(known) => known,
        None if has_extra_dependencies(&lines) => Recognition::ExtraDependencies,
        None => Recognition::Unknown,
    };
    (Some(base), recognition)
}

/// Image in the rest of an instruction `FROM`, which may have flags before it and a name behind it.
pub(super) fn operand(rest: &str) -> Option<&str> {
    rest.split_whitespace().find(|word| !word.starts_with("--"))
}

/// Joins continued lines, and drops comments, empty lines and indentation.
fn instructions(text: &str) -> Vec<String> {
    let (mut found, mut line) = (Vec::new(), String::new());
    for part in text.lines().map(str::trim) {
        if part.is_empty() || part.starts_with('#') {
            continue;
        }
        match part.strip_suffix('\\') {
            Some(part) => line.extend([part.trim_end(), " "]),
            None => found.push(std::mem::take(&mut line) + part),
        }
    }
    found
}

fn hash(instructions: &[impl AsRef<str> + Clone]) -> String {
    let text: Vec<_> = instructions.iter().map(AsRef::as_ref).collect();
    HEXLOWER.encode(digest(&SHA256, text.join("\n").as_bytes()).as_ref())
}

/// Returns whether a template is left without one `RUN`, and without the `USER` before it that
/// releases from 0.55 on add.
fn has_extra_dependencies(lines: &[String]) -> bool {
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let is_template = |first: usize, end: usize| {
        let rest = [&lines[..first], &lines[end..]].concat();
        TEMPLATES.contains_key(&*hash(&rest))
    };
    // They are near the end, and the longest template has 40 instructions.
    let candidates = (1..lines.len()).rev().take(MAX_SEARCHED);
    candidates
        .filter(|at| lines[*at].starts_with("RUN "))
        .any(|at| {
            let follows_user = lines[at - 1].starts_with("USER ");
            is_template(at, at + 1) || (follows_user && is_template(at - 1, at + 1))
        })
}

#[cfg(test)]
mod tests;
