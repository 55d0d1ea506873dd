//! What no program can be started with, however often the controller tries, or no Sandbox holds: found
//! here, the client is told while it still listens.

/// Longest word or variable that Linux hands to a program, in bytes, with the final NUL
/// (`MAX_ARG_STRLEN` of execve).
const LONGEST_WORD: usize = 128 * 1024;
/// Longest path that Linux takes, in bytes, with the final NUL (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;
/// Most words of a command, and longest line that is split into them, in bytes: the bounds of a Sandbox.
const MOST_WORDS: usize = 256;
const LONGEST_LINE: usize = 128 * 1024;
/// Most characters of a client's name that are told.
const TOLD: usize = 64;

/// Why nothing can be started.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Impossible {
    #[error("{0} has NUL in it")]
    Nul(String),
    #[error("environment has a name that is empty or has = or NUL in it")]
    Name,
    #[error("environment: {0} is longer than 128 KiB, the most that Linux gives to a program")]
    LongVariable(String),
    #[error("command has a word longer than 128 KiB, the most that Linux gives to a program")]
    LongWord,
    #[error("command has more than 256 words")]
    ManyWords,
    #[error("command is a line longer than 128 KiB")]
    LongLine,
    #[error("working_dir is longer than 4095 bytes, the most that Linux takes for a path")]
    LongPath,
}

/// Refuses text that would end early for every program.
pub(super) fn check_text(field: &str, text: &str) -> Result<(), Impossible> {
    if text.contains('\0') {
        return Err(Impossible::Nul(field.to_owned()));
    }
    Ok(())
}

/// Refuses a command that no program can be given.
pub(super) fn check_command(words: &[String]) -> Result<(), Impossible> {
    if words.len() > MOST_WORDS {
        return Err(Impossible::ManyWords);
    }
    for word in words {
        if word.len() + 1 > LONGEST_WORD {
            return Err(Impossible::LongWord);
        }
        check_text("command", word)?;
    }
    Ok(())
}

/// Refuses a line that no Sandbox holds.
pub(super) fn check_line(line: &str) -> Result<(), Impossible> {
    if line.len() > LONGEST_LINE {
        return Err(Impossible::LongLine);
    }
    Ok(())
}

/// Refuses a directory that no program can be in.
pub(super) fn check_directory(path: &str) -> Result<(), Impossible> {
    if path.len() + 1 > LONGEST_PATH {
        return Err(Impossible::LongPath);
    }
    check_text("working_dir", path)
}

/// Refuses a variable that no program can be given.
pub(super) fn check_variable(name: &str, value: &str) -> Result<(), Impossible> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(Impossible::Name);
    }
    let told: String = name.chars().take(TOLD).collect();
    if name.len() + value.len() + "=\0".len() > LONGEST_WORD {
        return Err(Impossible::LongVariable(told));
    }
    check_text(&format!("environment: the value of {told}"), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_those_of_linux_and_of_a_sandbox() {
        let word = |length| vec!["a".to_owned(), "x".repeat(length)];
        assert_eq!(check_command(&word(LONGEST_WORD - 1)), Ok(()));
        assert_eq!(
            check_command(&word(LONGEST_WORD)),
            Err(Impossible::LongWord)
        );
        let words = |count| vec!["a".to_owned(); count];
        assert_eq!(check_command(&words(MOST_WORDS)), Ok(()));
        let many = Err(Impossible::ManyWords);
        assert_eq!(check_command(&words(MOST_WORDS + 1)), many);
        assert_eq!(check_line(&"x".repeat(LONGEST_LINE)), Ok(()));
        let long = Err(Impossible::LongLine);
        assert_eq!(check_line(&"x".repeat(LONGEST_LINE + 1)), long);
        let path = |length| "/".repeat(length);
        assert_eq!(check_directory(&path(LONGEST_PATH - 1)), Ok(()));
        assert_eq!(
            check_directory(&path(LONGEST_PATH)),
            Err(Impossible::LongPath)
        );
        let value = "x".repeat(LONGEST_WORD - "A=\0".len());
        assert_eq!(check_variable("A", &value), Ok(()));
        let long = Impossible::LongVariable("A".into());
        assert_eq!(check_variable("A", &format!("{value}x")), Err(long));
        let long = Impossible::LongVariable("B".repeat(TOLD));
        assert_eq!(check_variable(&"B".repeat(LONGEST_WORD), ""), Err(long));
    }

    /// The bound is not of our making.
    #[test]
    fn linux_runs_what_is_let_through_and_nothing_longer() {
        let run = |length: usize| {
            let mut program = std::process::Command::new("/bin/true");
            program.arg("x".repeat(length)).status()
        };
        assert!(run(LONGEST_WORD - 1).unwrap().success());
        assert!(run(LONGEST_WORD).is_err());
    }
}
