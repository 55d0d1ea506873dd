//! How a Python module is started: through which wrappers, with which flags. The wrappers find an
//! interpreter; the native executor needs none, so all but the variables that they set fall away.

/// A Python module and what it is started with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Launch<'a> {
    /// `env` with the variables that it sets; empty without it.
    pub(super) environment: &'a [String],
    pub(super) module: &'a str,
    pub(super) arguments: &'a [String],
}

/// A program that starts what follows its own words.
struct Wrapper {
    names: &'static [&'static str],
    /// A word that must come after its flags, with more flags behind it.
    verb: Option<&'static str>,
    /// Flags whose value is the next word.
    valued: &'static [&'static str],
    /// Flags that stand alone.
    plain: &'static [&'static str],
}

const WRAPPERS: [Wrapper; 4] = [
    Wrapper {
        names: &["micromamba", "mamba", "conda"],
        verb: Some("run"),
        valued: &[
            "-n",
            "--name",
            "-p",
            "--prefix",
            "-r",
            "--root-prefix",
            "--cwd",
        ],
        plain: &["--no-capture-output", "--live-stream"],
    },
    Wrapper {
        names: &["poetry"],
        verb: Some("run"),
        valued: &["-C", "--directory", "-P", "--project"],
        plain: &["-q", "--quiet"],
    },
    Wrapper {
        names: &["nice"],
        verb: None,
        valued: &["-n"],
        plain: &[],
    },
    Wrapper {
        names: &["tini", "dumb-init"],
        verb: None,
        valued: &[],
        plain: &["--", "-g", "-s"],
    },
];

const ENV: Wrapper = Wrapper {
    names: &["env"],
    verb: None,
    valued: &["-u", "--unset"],
    plain: &[],
};

const PYTHON: Wrapper = Wrapper {
    names: &["python", "python3"],
    verb: None,
    valued: &["-X", "-W"],
    plain: &["-u", "-B", "-E", "-I", "-O", "-OO", "-s", "-S", "-q"],
};

impl<'a> Launch<'a> {
    /// Reads a command. `None` if it is no module of Python, or not surely one.
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
    /// What follows the wrapper's words; `None` if the command does not begin with it.
    fn strip<'a>(&self, command: &'a [String]) -> Option<&'a [String]> {
        let (program, rest) = command.split_first()?;
        if !self.names.contains(&plain_name(program)) {
            return None;
        }
        let rest = self.skip_flags(rest);
        match self.verb {
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
                _ if self.plain.contains(&flag.as_str()) => rest,
                [_, rest @ ..] if self.valued.contains(&flag.as_str()) => rest,
                _ => break,
            };
        }
        words
    }
}

/// Parts the command into `env` with its variables and the rest.
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
