//! Which isolation class a sandbox gets (runtime API spec 7.21). SDK clients ask every cluster for
//! `sysbox-runc`, so an unknown class must not fail unless the installation wants that.

use crate::gateway::RuntimeClasses;
use crate::gateway::api::ApiError;
use crate::runtime_class::real_name;

/// The class, and what to tell the client about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) name: Option<String>,
    pub(super) note: Option<String>,
}

/// Chooses the class for what the client asked for.
pub(super) fn choose(asked: Option<&str>, classes: &RuntimeClasses) -> Result<Choice, ApiError> {
    let default = |note| Choice {
        name: classes.default.clone(),
        note,
    };
    let Some(asked) = asked.filter(|name| !name.is_empty()) else {
        return Ok(default(None));
    };
    let class = real_name(asked, classes.gvisor.as_deref());
    if classes.installed.contains(class) || classes.default.as_deref() == Some(class) {
        return Ok(Choice {
            name: Some(class.to_owned()),
            note: None,
        });
    }
    if classes.strict {
        return Err(ApiError::bad(
            "runtime_class is not installed in this cluster",
        ));
    }
    let note = "the runtime class asked for is not installed; the default is used";
    Ok(default(Some(note.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(strict: bool) -> RuntimeClasses {
        RuntimeClasses {
            default: Some("runc".into()),
            installed: ["sysbox-runc", "runsc"].map(Into::into).into(),
            gvisor: Some("runsc".into()),
            strict,
        }
    }

    #[test]
    fn aliases_and_defaults() {
        let cases = [
            (None, "runc"),
            (Some(""), "runc"),
            (Some("runc"), "runc"),
            (Some("sysbox"), "sysbox-runc"),
            (Some("sysbox-runc"), "sysbox-runc"),
            (Some("gvisor"), "runsc"),
        ];
        for (asked, name) in cases {
            let choice = choose(asked, &classes(true)).unwrap();
            assert_eq!((choice.name.as_deref(), choice.note), (Some(name), None));
        }
    }

    #[test]
    fn an_unknown_class_falls_back_unless_strict() {
        let choice = choose(Some("kata"), &classes(false)).unwrap();
        assert_eq!(choice.name.as_deref(), Some("runc"));
        assert!(choice.note.is_some());
        assert!(choose(Some("kata"), &classes(true)).is_err());
    }
}
