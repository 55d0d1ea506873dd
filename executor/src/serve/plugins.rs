//! Plugins: what `--plugins` names, each a module behind one small trait.
//!
//! They start after the port listens, side by side, so that a sandbox that asks for none pays
//! nothing and one that asks for all is reachable at once. How to add one: `docs/plugins.md`.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use tokio::task::JoinSet;

use self::agent_skills::AgentSkills;
use self::jupyter::Jupyter;
use self::vscode::VsCode;
use super::editor::Editor;
use super::settings::Settings;
use super::shell::Start;

mod agent_skills;
pub(super) mod jupyter;

mod vscode;

/// What a method of a plugin returns: traits cannot say `async` and be objects.
pub(super) type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something beside shell, files and editor that a sandbox may be started with.
pub(super) trait Plugin: fmt::Debug + Send + Sync {
    fn name(&self) -> Name;

    /// Gets ready to serve. Called once, while the server serves already; whoever needs the plugin
    /// earlier waits for it. What goes wrong is for `health` to tell, never a reason to end.
    fn start(&self) -> Work<'_, ()>;

    /// Ends what it has started. Requests that wait for it are answered.
    fn stop(&self) -> Work<'_, ()>;

    fn health(&self) -> Health;

    /// Variables for the programs of other plugins, known once it has started.
    fn environment(&self) -> Vec<(&'static str, OsString)> {
        Vec::new()
    }
}

/// How a plugin is, in one word or with a reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Health {
    #[default]
    Starting,
    Ready,
    Failed(String),
}

impl Serialize for Health {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Starting => serializer.serialize_str("starting"),
            Self::Ready => serializer.serialize_str("ready"),
            Self::Failed(reason) => serializer.collect_str(&format_args!("failed: {reason}")),
        }
    }
}

/// The plugins there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    AgentSkills,
    Jupyter,
    VsCode,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("Plugin {0} not found")]
pub(super) struct UnknownName(String);

impl Name {
    const ALL: [Self; 3] = [Self::AgentSkills, Self::Jupyter, Self::VsCode];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::AgentSkills => "agent_skills",
            Self::Jupyter => "jupyter",
            Self::VsCode => "vscode",
        }
    }

    /// Each once, in the order in which they are first named.
    ///
    /// # Errors
    /// For the first word that names no plugin (spec 1.1).
    pub(super) fn parse_all(words: &[String]) -> Result<Vec<Self>, UnknownName> {
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

/// Those that this sandbox was started with.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    all: Vec<Arc<dyn Plugin>>,
    pub(super) jupyter: Option<Arc<Jupyter>>,
    pub(super) vscode: Option<Arc<VsCode>>,
}

impl Plugins {
    pub(super) fn new(settings: &Settings, start: &Start, editor: &Arc<Editor>) -> Self {
        let wanted = |name| settings.plugins.contains(&name);
        let skills = wanted(Name::AgentSkills)
            .then(|| Arc::new(AgentSkills::new(start.clone(), Arc::clone(editor))));
        let jupyter = wanted(Name::Jupyter).then(|| {
            Arc::new(Jupyter::new(
                start.clone(),
                skills.clone(),
                settings.start_timeout,
            ))
        });
        let vscode = wanted(Name::VsCode).then(|| {
            Arc::new(VsCode::new(
                settings.vscode.clone(),
                Arc::clone(&start.identity),
            ))
        });
        let mut plugins = Self {
            jupyter: jupyter.clone(),
            vscode: vscode.clone(),
            all: Vec::new(),
        };
        plugins
            .all
            .extend(skills.map(|plugin| plugin as Arc<dyn Plugin>));
        plugins
            .all
            .extend(jupyter.map(|plugin| plugin as Arc<dyn Plugin>));
        plugins
            .all
            .extend(vscode.map(|plugin| plugin as Arc<dyn Plugin>));
        plugins
    }

    /// Starts all at once, and returns when each is ready or has failed.
    pub(super) async fn start(&self) {
        let mut starting = JoinSet::new();
        for plugin in &self.all {
            let plugin = Arc::clone(plugin);
            starting.spawn(async move {
                plugin.start().await;
                let (name, health) = (plugin.name().as_str(), plugin.health());
                tracing::info!(plugin = name, ?health, "started");
            });
        }
        starting.join_all().await;
    }

    /// Those that use others go first.
    pub(super) async fn stop(&self) {
        for plugin in self.all.iter().rev() {
            plugin.stop().await;
        }
    }

    pub(super) fn health(&self) -> Vec<(&'static str, Health)> {
        let health = |plugin: &Arc<dyn Plugin>| (plugin.name().as_str(), plugin.health());
        self.all.iter().map(health).collect()
    }
}
