//! Plugins in the command of the native executor: those of `spec.plugins` are added to its flag.

use crds::sandbox::SandboxSpec;

use super::{effective_command, runs_executor};
use crate::reconcile::build::BuildError;

const FLAG: &str = "--plugins";
/// Bounds of the status.
const MAX_NAMES: usize = 64;
const MAX_NAME_BYTES: usize = 40;

/// Rejects plugins without a native executor that could have them. In a pool without a command,
/// each sandbox brings its own.
pub(crate) fn check(spec: &SandboxSpec, native: bool, of_pool: bool) -> Result<(), BuildError> {
    let command = effective_command(spec, native);
    let has_executor = command.as_deref().map_or(of_pool, runs_executor);
    if spec.plugins.is_empty() || has_executor {
        return Ok(());
    }
    let detail = "plugins need a command that is the native executor, or is replaced by it";
    Err(BuildError::at("spec.plugins", detail))
}

/// Names of the plugins of an effective command, for the status.
pub(crate) fn names(command: &[String]) -> Vec<String> {
    if !runs_executor(command) {
        return Vec::new();
    }
    let is_short = |name: &&str| (1..=MAX_NAME_BYTES).contains(&name.len());
    let words = chosen(command).into_iter().map(name);
    let names = words.filter(is_short).take(MAX_NAMES);
    names.map(str::to_owned).collect()
}

/// Adds plugins. One that the command has already gets the options of the new one.
pub(crate) fn add(command: &mut Vec<String>, plugins: &[String]) {
    if plugins.is_empty() {
        return;
    }
    let is_kept = |word: &&str| plugins.iter().all(|added| name(added) != name(word));
    let kept = chosen(command).into_iter().filter(is_kept);
    let all: Vec<_> = kept.map(str::to_owned).chain(plugins.to_vec()).collect();
    // The last of repeated flags wins.
    command.push(FLAG.to_owned());
    command.extend(all);
}

/// Words of the last flag.
fn chosen(command: &[String]) -> Vec<&str> {
    let inline = |word: &'_ String| word.strip_prefix(FLAG)?.strip_prefix('=').map(str::len);
    let last = command
        .iter()
        .rposition(|word| word == FLAG || inline(word).is_some());
    let Some(last) = last else {
        return Vec::new();
    };
    if let Some(length) = inline(&command[last]) {
        let word = &command[last];
        return vec![&word[word.len() - length..]];
    }
    let words = command[last + 1..].iter().map(String::as_str);
    words.take_while(|word| !word.starts_with('-')).collect()
}

fn name(word: &str) -> &str {
    word.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::words;
    use crds::contract::path::EXECUTOR;

    fn spec(command: &str, plugins: &str) -> SandboxSpec {
        SandboxSpec {
            command: Some(words(command)),
            plugins: words(plugins),
            ..SandboxSpec::default()
        }
    }

    #[test]
    fn plugins_of_the_spec_join_those_of_the_command() {
        let serve = format!("{EXECUTOR} serve 60000");
        for (given, plugins, expected) in [
            ("", "hello", " --plugins hello"),
            (" --plugins a b --user-id 0", "b:x c", " --plugins a b:x c"),
            (" --plugins=a", "c", " --plugins a c"),
            (" --plugins a --plugins b", "c", " --plugins b c"),
        ] {
            let spec = spec(&format!("{serve}{given}"), plugins);
            let command = effective_command(&spec, true).unwrap();
            assert_eq!(command, words(&format!("{serve}{given}{expected}")));
        }
    }

    #[test]
    fn python_server_gets_plugins_once_it_is_replaced() {
        let python =
            "env A=b python -m openhands.runtime.action_execution_server 60000 --plugins a";
        let spec = spec(python, "hello");
        let command = effective_command(&spec, true).unwrap();
        assert_eq!(names(&command), ["a", "hello"]);
        assert!(check(&spec, true, false).is_ok());
        assert_eq!(effective_command(&spec, false), Some(words(python)));
        for of_pool in [false, true] {
            let error = check(&spec, false, of_pool).unwrap_err().to_string();
            assert!(error.starts_with("spec.plugins: plugins need"), "{error}");
        }
        let without = SandboxSpec {
            command: None,
            ..spec
        };
        assert!(check(&without, true, true).is_ok());
        assert!(check(&without, true, false).is_err());
    }

    #[test]
    fn names_have_no_options() {
        let serve = format!("{EXECUTOR} serve 1 --plugins browser:view,cdp : hello");
        assert_eq!(names(&words(&serve)), ["browser", "hello"]);
        assert!(names(&words("other --plugins a")).is_empty());
    }
}
