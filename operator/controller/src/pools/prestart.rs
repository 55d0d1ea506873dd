//! The program that the warm Pods of a pool run before they are claimed.

use crds::contract::control::Probe;
use crds::contract::path::EXECUTOR;
use crds::contract::prestart::{DORMANT_FLAG, Handover, Prestart};
use crds::contract::{CONTROL_PORT, endpoint, port, variable};
use crds::names;
use crds::pool::PrestartMode;
use crds::sandbox::SandboxSpec;
use k8s_openapi::api::core::v1::{EnvVar, HTTPGetAction, Pod, Probe as KubeletProbe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::fixed_variables::is_fixed;
use crate::reconcile::build::command::{effective_command, is_agent_server, is_native, plugins};
use crate::reconcile::build::volumes::workspace_path;
use crate::reconcile::build::{BuildContext, BuildError};
use crate::reconcile::init_message::{probe, shared_variables};

/// Seconds that a program has to become warm. The kubelet then restarts the container.
const WARM_UP_LIMIT: i32 = 300;
/// Timeout of one question of the kubelet, in seconds.
const QUESTION_TIMEOUT: i32 = 5;
const AGENT_SERVER: &str = "/usr/local/bin/openhands-agent-server";

/// The program of a pool, whose template completes the sandbox in `context`.
pub(super) fn build(
    context: &BuildContext<'_>,
    mode: PrestartMode,
    path: Option<&str>,
) -> Result<Prestart, BuildError> {
    let spec = &context.entry.spec;
    let own = effective_command(spec, context.config.native_executor);
    let command = own.or_else(|| default_command(mode, spec));
    let fitting = command.filter(|command| match mode {
        PrestartMode::Executor => is_native(command),
        PrestartMode::AgentServer => is_agent_server(command),
        PrestartMode::Command => true,
    });
    let missing = || BuildError::at("spec.prestart", requirement(mode));
    let mut command = fitting.ok_or_else(missing)?;
    let probe = Probe {
        path: match mode {
            // The server answers 503 until the claim.
            PrestartMode::Executor => None,
            PrestartMode::AgentServer => probe(context.entry, &command).path,
            PrestartMode::Command => path.map(str::to_owned),
        },
        port: probe(context.entry, &command).port,
    };
    if mode == PrestartMode::Executor {
        command.push(DORMANT_FLAG.to_owned());
    }
    let working_dir = spec.working_dir.as_deref();
    Ok(Prestart {
        handover: match mode {
            PrestartMode::Executor => Handover::Executor,
            PrestartMode::AgentServer => Handover::AgentServer,
            PrestartMode::Command => Handover::Command,
        },
        working_dir: working_dir.unwrap_or(workspace_path(spec)).to_owned(),
        environment: environment(context),
        command,
        probe,
    })
}

fn requirement(mode: PrestartMode) -> &'static str {
    match mode {
        PrestartMode::Executor => "template.command must be the action execution server, or absent",
        PrestartMode::AgentServer => "template.command must be the agent-server, or absent",
        PrestartMode::Command => "template.command is missing",
    }
}

fn default_command(mode: PrestartMode, spec: &SandboxSpec) -> Option<Vec<String>> {
    let runtime = port::RUNTIME.to_string();
    let words = match mode {
        PrestartMode::Executor => {
            let directory = workspace_path(spec);
            vec![EXECUTOR, "serve", &runtime, "--working-dir", directory]
        }
        PrestartMode::AgentServer => vec![AGENT_SERVER, "--port", &runtime],
        PrestartMode::Command => return None,
    };
    let mut words: Vec<_> = words.into_iter().map(str::to_owned).collect();
    if mode == PrestartMode::Executor {
        plugins::add(&mut words, &spec.plugins);
    }
    Some(words)
}

/// Variables of every sandbox of the pool: those of the operator, then those of the template.
fn environment(context: &BuildContext<'_>) -> std::collections::BTreeMap<String, String> {
    let mut all = shared_variables(context);
    let own = &context.entry.spec.env;
    for variable in own {
        // With references, all of them are part of the Pod.
        if is_fixed(own) {
            all.remove(&variable.name);
        } else {
            let value = variable.value.clone().unwrap_or_default();
            all.insert(variable.name.clone(), value);
        }
    }
    all
}

/// Makes the supervisor of a Pod run the program, and the kubelet wait until it is warm.
pub(super) fn add(pod: &mut Pod, prestart: &Prestart) {
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for container in containers.filter(|container| container.name == names::CONTAINER) {
        container.env.get_or_insert_default().push(EnvVar {
            name: variable::PRESTART.to_owned(),
            // Text, numbers and maps with text as keys can always be serialized.
            value: serde_json::to_string(prestart).ok(),
            value_from: None,
        });
        container.startup_probe = Some(KubeletProbe {
            http_get: Some(HTTPGetAction {
                path: Some(endpoint::WARM.to_owned()),
                port: IntOrString::Int(CONTROL_PORT.into()),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(1),
            timeout_seconds: Some(QUESTION_TIMEOUT),
            failure_threshold: Some(WARM_UP_LIMIT),
            ..KubeletProbe::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::Pool;
    use super::super::shape::{WarmPods, WarmTemplate};
    use super::*;
    use crate::pod_features::PodFeatures;
    use crate::reconcile::build::PoolRef;
    use crate::tests::{config, key, keys, words};

    fn pool(prestart: &str, command: Option<&str>) -> Pool {
        let spec: Value = json!({
            "prestart": prestart,
            "prestartPath": "/healthz",
            "template": {
                "image": "i",
                "command": command.map(words),
                "env": [{"name": "A", "value": "1"}],
            },
        });
        Pool::new("p".into(), serde_json::from_value(spec).unwrap())
    }

    fn template(prestart: &str, command: Option<&str>) -> Result<Arc<WarmTemplate>, BuildError> {
        let pods = WarmPods {
            config: &config(),
            keys: &keys(),
            features: PodFeatures::default(),
        };
        pods.template(&pool(prestart, command), None)
    }

    /// Command and probe of the program that a Pod runs.
    fn program(prestart: &str, command: Option<&str>) -> (String, Probe) {
        let pods = WarmPods {
            config: &config(),
            keys: &keys(),
            features: PodFeatures::default(),
        };
        let owner = PoolRef {
            name: "p".into(),
            uid: "u".into(),
        };
        let template = template(prestart, command).unwrap();
        let pod = pods.build(key("p-a"), &owner, &template, true).unwrap();
        let container = pod.spec.unwrap().containers.remove(0);
        assert!(container.startup_probe.is_some());
        let env = container.env.unwrap_or_default();
        let text = env.iter().find(|own| own.name == variable::PRESTART);
        let text = text.unwrap().value.as_deref().unwrap();
        let prestart: Prestart = serde_json::from_str(text).unwrap();
        assert_eq!(prestart.environment["A"], "1");
        assert_eq!(prestart.environment["OH_VSCODE_PORT"], "60001");
        assert!(!prestart.environment.contains_key("OH_SECRET_KEY"));
        (prestart.command.join(" "), prestart.probe)
    }

    #[test]
    fn program_comes_from_the_template_or_the_mode() {
        let server = "python -m openhands.runtime.action_execution_server 60000 --plugins jupyter";
        let executor = |arguments: &str| format!("{EXECUTOR} serve 60000 {arguments} --dormant");
        let agent = "/usr/local/bin/openhands-agent-server --port 60000";
        for (mode, command, expected, path) in [
            ("Executor", None, executor("--working-dir /workspace"), None),
            (
                "Executor",
                Some(server),
                executor("--plugins jupyter"),
                None,
            ),
            ("AgentServer", None, agent.to_owned(), Some("/alive")),
            ("AgentServer", Some(agent), agent.to_owned(), Some("/alive")),
            (
                "Command",
                Some("nginx -g off"),
                "nginx -g off".into(),
                Some("/healthz"),
            ),
        ] {
            let (found, probe) = program(mode, command);
            assert_eq!((&found, probe.path.as_deref()), (&expected, path), "{mode}");
        }
        for (mode, command, error) in [
            (
                "Executor",
                Some(agent),
                "template.command must be the action execution server",
            ),
            (
                "AgentServer",
                Some(server),
                "template.command must be the agent-server",
            ),
            ("Command", None, "template.command is missing"),
        ] {
            let found = template(mode, command).unwrap_err().to_string();
            assert!(
                found.starts_with(&format!("spec.prestart: {error}")),
                "{found}"
            );
        }
    }

    #[test]
    fn program_changes_the_revision_and_not_the_shape() {
        let of = |command| template("Command", Some(command)).unwrap();
        let (a, b) = (of("a"), of("b"));
        assert_eq!(a.shape, b.shape);
        assert_ne!(a.revision, b.revision);
    }
}
