//! Plugins of `--plugins`, each a module behind one small trait (`docs/plugins.md`).
//!
//! They start concurrently after the port listens, so that they do not delay the first request.

use std::sync::Arc;

use tokio::task::JoinSet;

use self::agent_skills::AgentSkills;
use self::jupyter::Jupyter;
use self::name::PluginName;
pub(super) use self::plugin::Health;
use self::plugin::Plugin;
use self::vscode::VsCode;
use super::editor::Editor;
use super::settings::Settings;
use super::shell::LaunchContext;

mod agent_skills;
pub(super) mod jupyter;
pub(super) mod name;
mod plugin;
mod vscode;

/// Plugins that this sandbox was started with.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    all: Vec<Arc<dyn Plugin>>,
    pub(super) jupyter: Option<Arc<Jupyter>>,
    pub(super) vscode: Option<Arc<VsCode>>,
}

impl Plugins {
    pub(super) fn new(settings: &Settings, start: &LaunchContext, editor: &Arc<Editor>) -> Self {
        let wanted = |name| settings.plugins.contains(&name);
        let skills = wanted(PluginName::AgentSkills)
            .then(|| Arc::new(AgentSkills::new(start.clone(), Arc::clone(editor))));
        let jupyter = wanted(PluginName::Jupyter).then(|| {
            Arc::new(Jupyter::new(
                start.clone(),
                skills.clone(),
                settings.start_timeout,
            ))
        });
        let vscode = wanted(PluginName::VsCode).then(|| {
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

    /// Starts all plugins concurrently and returns when each is ready or has failed.
    pub(super) async fn start(&self) {
        let mut starting = JoinSet::new();
        for plugin in &self.all {
            let plugin = Arc::clone(plugin);
            starting.spawn(async move {
                plugin.start().await;
                let (name, health) = (plugin.name().as_str(), plugin.health());
                tracing::info!(plugin = name, ?health, "plugin started");
            });
        }
        starting.join_all().await;
    }

    /// Stops the plugins in reverse order: a plugin that uses another stops first.
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
