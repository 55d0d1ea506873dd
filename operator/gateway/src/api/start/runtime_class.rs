//! Chooses the runtime class of a sandbox (`docs/specs/runtime-api.md`, section 7, rule 21). SDK
//! clients request `sysbox-runc` everywhere, so an unknown class only fails in strict mode.

use crate::RuntimeClasses;
use crate::api::ApiError;
use crate::config::present;
use shared::runtime_class::real_name;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RuntimeClassChoice {
    pub(super) name: Option<String>,
    pub(super) note: Option<String>,
}

pub(super) fn choose(
    requested: Option<&str>,
    classes: &RuntimeClasses,
) -> Result<RuntimeClassChoice, ApiError> {
    let default_class = present(classes.default.as_deref());
    let default = |note| RuntimeClassChoice {
        name: default_class.map(str::to_owned),
        note,
    };
    let Some(requested) = present(requested) else {
        return Ok(default(None));
    };
    let class = real_name(requested, present(Some(&classes.gvisor)));
    if classes.installed.iter().any(|name| name == class) || default_class == Some(class) {
        return Ok(RuntimeClassChoice {
            name: Some(class.to_owned()),
            note: None,
        });
    }
    if classes.strict {
        return Err(ApiError::bad_request(
            "runtime_class is not installed in this cluster",
        ));
    }
    let note = "the requested runtime class is not installed; the default is used";
    Ok(default(Some(note.to_owned())))
}
