//! The runtime class of a Pod.

use crds::sandbox::SandboxSpec;
use shared::runtime_class::real_name;

use crate::config::ControllerConfig;

/// The class that a spec asks for, by its real name.
pub(crate) fn requested<'a>(
    spec: &'a SandboxSpec,
    config: &'a ControllerConfig,
) -> Option<&'a str> {
    let requested = spec.runtime_class_name.as_deref()?;
    Some(real_name(requested, config.classes.gvisor.as_deref()))
}

/// The class of a Pod of this spec: that of its template, the requested one unless the cluster lacks
/// it, or the default one.
pub(crate) fn of_pod<'a>(
    spec: &'a SandboxSpec,
    config: &'a ControllerConfig,
    is_missing: bool,
) -> Option<&'a str> {
    let template = spec.pod_template.as_ref();
    let merged = template.and_then(|template| template["spec"]["runtimeClassName"].as_str());
    let requested = requested(spec, config).filter(|_| !is_missing);
    let default = config.defaults.runtime_class_name.as_deref();
    merged.or(requested).or(default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::config;

    #[test]
    fn template_comes_before_the_spec_and_the_default() {
        let mut config = config();
        config.classes.gvisor = Some("runsc".into());
        let template = json!({"spec": {"runtimeClassName": "kata"}});
        for (spec, is_missing, without_default, with_default) in [
            (json!({}), false, None, Some("crun")),
            (
                json!({"runtimeClassName": "gvisor"}),
                false,
                Some("runsc"),
                Some("runsc"),
            ),
            (
                json!({"runtimeClassName": "gvisor"}),
                true,
                None,
                Some("crun"),
            ),
            (
                json!({"runtimeClassName": "gvisor", "podTemplate": template}),
                true,
                Some("kata"),
                Some("kata"),
            ),
        ] {
            let spec: SandboxSpec = serde_json::from_value(spec).unwrap();
            config.defaults.runtime_class_name = None;
            assert_eq!(of_pod(&spec, &config, is_missing), without_default);
            config.defaults.runtime_class_name = Some("crun".into());
            assert_eq!(of_pod(&spec, &config, is_missing), with_default);
        }
    }
}
