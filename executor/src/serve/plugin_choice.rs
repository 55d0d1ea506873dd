//! Plugins as `--plugins` names them (`docs/plugins.md`): `NAME`, or `NAME:OPTION,OPTION` for one
//! that has options.

/// A plugin that is part of the binary.
#[derive(Debug)]
struct BuiltIn {
    name: &'static str,
    options: &'static [&'static str],
}

const BUILT_INS: [BuiltIn; 4] = [
    BuiltIn::plain("agent_skills"),
    BuiltIn {
        name: "browser",
        options: &["cdp", "profile", "start", "view"],
    },
    BuiltIn::plain("jupyter"),
    BuiltIn::plain("vscode"),
];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChoiceError {
    /// Text of the Python server.
    #[error("Plugin {0} not found")]
    Unknown(String),
    #[error("Plugin {name} not found: none of the directories {directories} has it")]
    NoFolder { name: String, directories: String },
    #[error("Plugin {plugin} has no option {option:?}")]
    Option { plugin: String, option: String },
    #[error("more than {0} plugins")]
    TooMany(usize),
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

    pub(super) fn is_built_in(&self) -> bool {
        self.built_in().is_some()
    }

    fn built_in(&self) -> Option<&'static BuiltIn> {
        BUILT_INS.iter().find(|known| known.name == self.name)
    }

    /// Rejects an option that the plugin does not have. One of the user has none.
    pub(super) fn check_options(&self) -> Result<(), ChoiceError> {
        let known = self.built_in().map_or(&[][..], |known| known.options);
        let mut given = self.options.iter();
        match given.find(|option| !known.contains(option)) {
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
    fn check_options_names_what_is_unknown() {
        let check = |word| Choice::parse(word).check_options();
        assert_eq!(check("jupyter"), Ok(()));
        for (word, plugin, option) in [("vscode:a", "vscode", "a"), ("own:", "own", "")] {
            let [plugin, option] = [plugin, option].map(str::to_owned);
            assert_eq!(check(word), Err(ChoiceError::Option { plugin, option }));
        }
    }
}
