//! Runtime class of sandboxes.

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, failed};
use crate::installation::variable;

pub(super) fn check(facts: &Facts) -> Outcome {
    let Some(name) = variable(facts.deployment("controller")?, "RUNTIME_CLASS") else {
        return Ok("sandboxes use the default runtime".into());
    };
    match facts.find(Resource::RuntimeClasses, name)? {
        Some(_) => Ok(format!("RuntimeClass {name} exists")),
        None => Err(failed(
            format!("RuntimeClass {name} of the chart's values is absent"),
            "install the runtime, or set sandboxes.runtimeClass to one of `kubectl get runtimeclasses`",
        )),
    }
}
