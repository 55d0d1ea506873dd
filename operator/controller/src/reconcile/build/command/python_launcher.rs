//! Recognizes the start of a Python module behind known wrappers and flags. Wrappers find an
//! interpreter, which the native executor does not need. Only the variables that they set are kept.

/// A Python module with its arguments and environment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PythonLaunch<'a> {
    /// `env` and the variables that it sets; empty without `env`.
    pub(super) environment: &'a [String],
    pub(super) module: &'a str,
    pub(super) arguments: &'a [String],
}

/// A program that starts the command in its arguments. Lists are words.
struct Wrapper {
    names: &'static str,
    /// Subcommand that must follow the flags. More flags may follow it.
    subcommand: Option<&'static str>,
    /// Flags whose value is the next argument.
    flags_with_value: &'static str,
    /// Flags without a value.
    flags_without_value: &'static str,
}

const WRAPPERS: [Wrapper; 4] = [
    Wrapper {
        names: "micromamba mamba conda",
        subcommand: Some("run"),
        flags_with_value: "-n --name -p --prefix -r --root-prefix --cwd",
        flags_without_value: "--no-capture-output --live-stream",
    },
    Wrapper {
        names: "poetry",
        subcommand: Some("run"),
        flags_with_value: "-C --directory -P --project",
        flags_without_value: "-q --quiet",
    },
    Wrapper {
        names: "nice",
        subcommand: None,
        flags_with_value: "-n",
        flags_without_value: "",
    },
    Wrapper {
        names: "tini dumb-init",
        subcommand: None,
        flags_with_value: "",
        flags_without_value: "-- -g -s",
    },
];

const ENV: Wrapper = Wrapper {
    names: "env",
    subcommand: None,
    flags_with_value: "-u --unset",
    flags_without_value: "",
};

const PYTHON: Wrapper = Wrapper {
    names: "python python3",
    subcommand: None,
    flags_with_value: "-X -W",
    flags_without_value: "-u -B -E -I -O -OO -s -S -q",
};

impl<'a> PythonLaunch<'a> {
    /// Parses a command. `None` unless it certainly starts a Python module.
    pub(super) fn read(command: &'a [String]) -> Option<Self> {
        let (environment, mut rest) = variables(command);
        while let Some(inner) = WRAPPERS.iter().find_map(|wrapper| wrapper.strip(rest)) {
            rest = inner;
        }
        let rest = PYTHON.strip(rest)?;
        let (flag, rest) = rest.split_first()?;
        let (module, arguments) = rest.split_first()?;
        (flag == "-m").then_some(Self {
            environment,
            module,
            arguments,
        })
    }
}

impl Wrapper {
    /// The command behind the wrapper; `None` if the command does not begin with this wrapper.
    fn strip<'a>(&self, command: &'a [String]) -> Option<&'a [String]> {
        let (program, rest) = command.split_first()?;
        if !lists(self.names, plain_name(program)) {
            return None;
        }
        let rest = self.skip_flags(rest);
        match self.subcommand {
            None => Some(rest),
            Some(verb) => {
                let (word, rest) = rest.split_first()?;
                (word == verb).then(|| self.skip_flags(rest))
            }
        }
    }

    fn skip_flags<'a>(&self, mut words: &'a [String]) -> &'a [String] {
        while let Some((flag, rest)) = words.split_first() {
            words = match rest {
                _ if lists(self.flags_without_value, flag) => rest,
                [_, rest @ ..] if lists(self.flags_with_value, flag) => rest,
                _ => break,
            };
        }
        words
    }
}

fn lists(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|listed| listed == word)
}

/// Splits the command into `env` with its variables and the rest.
fn variables(command: &[String]) -> (&[String], &[String]) {
    let Some(mut rest) = ENV.strip(command) else {
        return (&[], command);
    };
    while let Some((word, after)) = rest.split_first() {
        if word.starts_with('-') || !word.contains('=') {
            break;
        }
        rest = after;
    }
    command.split_at(command.len() - rest.len())
}

/// The program without its directory, and Python without its minor version.
fn plain_name(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or(program);
    match name.split_once('.') {
        Some(("python3", minor)) if minor.bytes().all(|b| b.is_ascii_digit()) => "python3",
        _ => name,
    }
}
