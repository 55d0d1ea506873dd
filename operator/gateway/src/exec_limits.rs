//! Validates a start request against the limits of `execve` and of the Sandbox schema. The client
//! gets a 400 from `/start` instead of a sandbox that can never start.

/// Maximum bytes of an argument or variable, including the NUL (`MAX_ARG_STRLEN` of execve).
const MAX_ARG_BYTES: usize = 128 * 1024;
/// Maximum length of a path in bytes, including the NUL (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4096;
/// Maximum number of arguments, and length in bytes of a command line (Sandbox schema).
const MAX_ARGS: usize = 256;
const MAX_COMMAND_LINE_BYTES: usize = 128 * 1024;
/// Maximum bytes of all arguments, each with its NUL: every replica keeps them, also of paused sandboxes.
const MAX_COMMAND_BYTES: usize = 256 * 1024;
const MAX_QUOTED_NAME_CHARS: usize = 64;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ExecLimitError {
    #[error("{0} must not contain a NUL byte")]
    ContainsNul(String),
    #[error("environment: a name must not be empty and must not contain = or a NUL byte")]
    InvalidVariableName,
    #[error("environment: {0} exceeds 128 KiB, the limit of Linux for a variable")]
    VariableTooLong(String),
    #[error("command: an argument exceeds 128 KiB, the limit of Linux")]
    ArgumentTooLong,
    #[error("command: the program must not be empty")]
    EmptyProgram,
    #[error("command exceeds 256 arguments")]
    TooManyArguments,
    #[error("command exceeds 256 KiB")]
    CommandTooLong,
    #[error("command: the line exceeds 128 KiB")]
    CommandLineTooLong,
    #[error("working_dir exceeds 4095 bytes, the limit of Linux for a path")]
    PathTooLong,
}

/// Rejects text with a NUL byte.
pub(super) fn check_text(field: &str, text: &str) -> Result<(), ExecLimitError> {
    if text.contains('\0') {
        return Err(ExecLimitError::ContainsNul(field.to_owned()));
    }
    Ok(())
}

pub(super) fn check_command(words: &[String]) -> Result<(), ExecLimitError> {
    if words.len() > MAX_ARGS {
        return Err(ExecLimitError::TooManyArguments);
    }
    if words.first().is_some_and(String::is_empty) {
        return Err(ExecLimitError::EmptyProgram);
    }
    for word in words {
        if word.len() + 1 > MAX_ARG_BYTES {
            return Err(ExecLimitError::ArgumentTooLong);
        }
        check_text("command", word)?;
    }
    if words.iter().map(|word| word.len() + 1).sum::<usize>() > MAX_COMMAND_BYTES {
        return Err(ExecLimitError::CommandTooLong);
    }
    Ok(())
}

pub(super) fn check_line(line: &str) -> Result<(), ExecLimitError> {
    if line.len() > MAX_COMMAND_LINE_BYTES {
        return Err(ExecLimitError::CommandLineTooLong);
    }
    Ok(())
}

pub(super) fn check_directory(path: &str) -> Result<(), ExecLimitError> {
    if path.len() + 1 > MAX_PATH_BYTES {
        return Err(ExecLimitError::PathTooLong);
    }
    check_text("working_dir", path)
}

/// Rejects a variable that `execve` cannot pass.
pub(super) fn check_variable(name: &str, value: &str) -> Result<(), ExecLimitError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(ExecLimitError::InvalidVariableName);
    }
    let quoted: String = name.chars().take(MAX_QUOTED_NAME_CHARS).collect();
    if name.len() + value.len() + "=\0".len() > MAX_ARG_BYTES {
        return Err(ExecLimitError::VariableTooLong(quoted));
    }
    check_text(&format!("environment: the value of {quoted}"), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_match_linux_and_the_sandbox_schema() {
        let word = |length| vec!["a".to_owned(), "x".repeat(length)];
        assert_eq!(check_command(&word(MAX_ARG_BYTES - 1)), Ok(()));
        assert_eq!(
            check_command(&word(MAX_ARG_BYTES)),
            Err(ExecLimitError::ArgumentTooLong)
        );
        let three = vec!["x".repeat(MAX_ARG_BYTES - 1); 3];
        assert_eq!(check_command(&three[1..]), Ok(()));
        let long = Err(ExecLimitError::CommandTooLong);
        assert_eq!(check_command(&three), long);
        let empty = check_command(&[String::new(), "a".to_owned()]);
        assert_eq!(empty, Err(ExecLimitError::EmptyProgram));
        let words = |count| vec!["a".to_owned(); count];
        assert_eq!(check_command(&words(MAX_ARGS)), Ok(()));
        let many = Err(ExecLimitError::TooManyArguments);
        assert_eq!(check_command(&words(MAX_ARGS + 1)), many);
        assert_eq!(check_line(&"x".repeat(MAX_COMMAND_LINE_BYTES)), Ok(()));
        let long = Err(ExecLimitError::CommandLineTooLong);
        assert_eq!(check_line(&"x".repeat(MAX_COMMAND_LINE_BYTES + 1)), long);
        let path = |length| "/".repeat(length);
        assert_eq!(check_directory(&path(MAX_PATH_BYTES - 1)), Ok(()));
        assert_eq!(
            check_directory(&path(MAX_PATH_BYTES)),
            Err(ExecLimitError::PathTooLong)
        );
        let value = "x".repeat(MAX_ARG_BYTES - "A=\0".len());
        assert_eq!(check_variable("A", &value), Ok(()));
        let long = ExecLimitError::VariableTooLong("A".into());
        assert_eq!(check_variable("A", &format!("{value}x")), Err(long));
        for name in ["", "A=B", "A\0"] {
            let invalid = Err(ExecLimitError::InvalidVariableName);
            assert_eq!(check_variable(name, "x"), invalid);
        }
        assert!(check_variable("A", "x\0y").is_err());
        let long = ExecLimitError::VariableTooLong("B".repeat(MAX_QUOTED_NAME_CHARS));
        assert_eq!(check_variable(&"B".repeat(MAX_ARG_BYTES), ""), Err(long));
    }

    #[test]
    fn longest_accepted_argument_is_the_longest_that_linux_runs() {
        let run = |length: usize| {
            let mut program = std::process::Command::new("/bin/true");
            program.arg("x".repeat(length)).status()
        };
        assert!(run(MAX_ARG_BYTES - 1).unwrap().success());
        assert!(run(MAX_ARG_BYTES).is_err());
    }
}
