//! Names of the plugins, apart from the plugins so that the settings do not depend on them.

/// Names that `--plugins` accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum PluginName {
    AgentSkills,
    Jupyter,
    VsCode,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("Plugin {0} not found")]
pub(in crate::serve) struct UnknownName(String);

impl PluginName {
    const ALL: [Self; 3] = [Self::AgentSkills, Self::Jupyter, Self::VsCode];

    pub(in crate::serve) fn as_str(self) -> &'static str {
        match self {
            Self::AgentSkills => "agent_skills",
            Self::Jupyter => "jupyter",
            Self::VsCode => "vscode",
        }
    }

    /// Parses names and drops duplicates; the order is that of their first occurrence.
    ///
    /// # Errors
    /// For the first unknown name (`docs/specs/executor.md`, section 1.1).
    pub(in crate::serve) fn parse_all(words: &[String]) -> Result<Vec<Self>, UnknownName> {
        let mut names = Vec::new();
        for word in words {
            let found = Self::ALL.into_iter().find(|name| name.as_str() == word);
            let name = found.ok_or_else(|| UnknownName(word.clone()))?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }
}
