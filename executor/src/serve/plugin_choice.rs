//! Plugins as `--plugins` names them (`docs/plugins.md`): `NAME`, or `NAME:OPTION,OPTION` for one
//! that has options.

/// A plugin that is part of the binary.
#[derive(Debug)]
struct BuiltIn {
    name: &'static str,
    options: &'static [&'static str],
}

const BUILT_INS: [BuiltIn; 3] = [
    BuiltIn::plain("agent_skills"),
    BuiltIn::plain("jupyter"),
    BuiltIn::plain("vscode"),
];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChoiceError {
    /// Text of the Python server.
    #[error("Plugin {0} not found")]
    Unknown(String),
    #[error("Plugin {plugin} has no option {option:?}")]
    Option { plugin: String, option: String },
}

/// One word of `--plugins`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice<'a> {
    pub(super) name: &'a str,
    pub(super) options: Vec<&'a str>,
}

impl BuiltIn {
    const fn plain(name: &'static str) -> Self {
        Self { name, options: &[] }
    }
}

impl<'a> Choice<'a> {
    pub(super) fn parse(word: &'a str) -> Self {
        let (name, options) = match word.split_once(':') {
            Some((name, options)) => (name, options.split(',').collect()),
            None => (word, Vec::new()),
        };
        Self { name, options }
    }

    /// Rejects an unknown plugin and an option that it does not have.
    pub(super) fn check(&self) -> Result<(), ChoiceError> {
        let known = BUILT_INS.iter().find(|known| known.name == self.name);
        let known = known.ok_or_else(|| ChoiceError::Unknown(self.name.to_owned()))?;
        let mut given = self.options.iter();
        match given.find(|option| !known.options.contains(option)) {
            None => Ok(()),
            Some(option) => Err(ChoiceError::Option {
                plugin: self.name.to_owned(),
                option: (*option).to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_follow_the_name() {
        let choice = Choice::parse("browser:view,cdp");
        assert_eq!(
            (choice.name, &*choice.options),
            ("browser", &["view", "cdp"][..])
        );
        assert!(Choice::parse("browser").options.is_empty());
    }

    #[test]
    fn check_names_what_is_unknown() {
        let check = |word| {
            Choice::parse(word)
                .check()
                .map_err(|error| error.to_string())
        };
        assert_eq!(check("jupyter"), Ok(()));
        assert_eq!(check("x"), Err("Plugin x not found".to_owned()));
        for (word, option) in [("vscode:a", "a"), ("vscode:", "")] {
            let expected = format!("Plugin vscode has no option {option:?}");
            assert_eq!(check(word), Err(expected));
        }
    }
}
