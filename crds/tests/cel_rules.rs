//! CEL rules of the CRDs, evaluated locally.

use crds::Sandbox;
use crds::int_or_string::IntOrString;
use crds::sandbox::{DesiredState, SandboxSpec, Session, Workspace};

fn sandbox(name: &str) -> Sandbox {
    Sandbox::new(
        name,
        SandboxSpec {
            image: Some("debian:12".into()),
            ..SandboxSpec::default()
        },
    )
}

fn refusal(result: Result<(), impl std::fmt::Display>) -> String {
    result.err().map(|e| e.to_string()).unwrap_or_default()
}

/// Message of the rejection of a change; empty if it is accepted.
fn update(old: &Sandbox, change: impl FnOnce(&mut SandboxSpec)) -> String {
    let mut new = old.clone();
    change(&mut new.spec);
    refusal(new.validate_cel_update(old))
}

#[test]
fn image_or_pool_is_required() {
    assert_eq!(refusal(sandbox("a").validate_cel()), "");
    let mut bare = sandbox("a");
    bare.spec.image = None;
    assert!(refusal(bare.validate_cel()).contains("image is required unless pool is set"));
    bare.spec.pool = Some("default".into());
    assert_eq!(refusal(bare.validate_cel()), "");
}

#[test]
fn name_must_be_a_short_dns_label() {
    assert_eq!(refusal(sandbox(&"a".repeat(52)).validate_cel()), "");
    assert!(refusal(sandbox(&"a".repeat(53)).validate_cel()).contains("at most 52"));
    assert!(refusal(sandbox("a.b").validate_cel()).contains("DNS label"));
}

#[test]
fn resource_factor_must_be_positive() {
    for (factor, accepted) in [(0.5, true), (4.0, true), (0.0, false), (-1.0, false)] {
        let mut sandbox = sandbox("a");
        sandbox.spec.resource_factor = Some(factor);
        assert_eq!(sandbox.validate_cel().is_ok(), accepted, "{factor}");
    }
}

#[test]
fn running_sandbox_keeps_image_command_and_workspace() {
    let old = sandbox("a");
    let workspace = |spec: &mut SandboxSpec| {
        spec.workspace = Some(Workspace {
            size: IntOrString::String("1Gi".into()),
            ..Workspace::default()
        });
    };
    assert!(update(&old, |s| s.image = Some("other".into())).contains("image cannot change"));
    assert!(
        update(&old, |s| s.command = Some(vec!["sh".into()])).contains("command cannot change")
    );
    assert!(update(&old, workspace).contains("workspace cannot change"));
    assert_eq!(update(&old, |s| s.state = DesiredState::Paused), "");

    let mut paused = old;
    paused.spec.state = DesiredState::Paused;
    assert_eq!(update(&paused, |s| s.image = Some("other".into())), "");
    assert_eq!(update(&paused, workspace), "");
}

#[test]
fn workspace_size_is_immutable() {
    let mut old = sandbox("a");
    old.spec.state = DesiredState::Paused;
    old.spec.workspace = Some(Workspace {
        size: IntOrString::String("1Gi".into()),
        ..Workspace::default()
    });
    let grow = update(&old, |s| {
        s.workspace.as_mut().unwrap().size = IntOrString::String("2Gi".into());
    });
    assert!(grow.contains("immutable"), "{grow}");
    let moved = update(&old, |s| {
        s.workspace.as_mut().unwrap().mount_path = Some("/data".into());
    });
    assert_eq!(moved, "");
}

#[test]
fn stopped_sandbox_cannot_be_restarted() {
    let mut old = sandbox("a");
    old.spec.state = DesiredState::Stopped;
    let again = update(&old, |s| s.state = DesiredState::Running);
    assert!(again.contains("cannot be started again"), "{again}");
}

#[test]
fn session_is_immutable() {
    let old = sandbox("a");
    let session = |s: &mut SandboxSpec| {
        s.session = Some(Session {
            tenant: "default".into(),
            id: "s".into(),
            ..Session::default()
        });
    };
    assert!(update(&old, session).contains("session is immutable"));
}

#[test]
fn key_rotation_only_rises() {
    let old = sandbox("a");
    assert_eq!(update(&old, |s| s.key_rotation = Some(1)), "");
    let mut rotated = old;
    rotated.spec.key_rotation = Some(2);
    assert_eq!(update(&rotated, |s| s.key_rotation = Some(3)), "");
    for lower in [Some(1), None] {
        let refused = update(&rotated, |s| s.key_rotation = lower);
        assert!(refused.contains("keyRotation can only rise"), "{refused}");
    }
}

#[test]
fn workspace_size_must_be_a_quantity() {
    let text = |text: &str| IntOrString::String(text.into());
    let size = |size: IntOrString| {
        let mut sandbox = sandbox("a");
        sandbox.spec.workspace = Some(Workspace {
            size,
            ..Workspace::default()
        });
        refusal(sandbox.validate_cel())
    };
    for good in [
        text("10Gi"),
        text("1e9"),
        text("1.5G"),
        IntOrString::Int(1 << 40),
    ] {
        assert_eq!(size(good.clone()), "", "{good:?}");
    }
    for bad in [
        text("10GB"),
        text("0"),
        text("500m"),
        text(""),
        IntOrString::Int(0),
    ] {
        let said = size(bad.clone());
        assert!(
            said.contains("must be a quantity such as 10Gi"),
            "{bad:?}: {said}"
        );
    }
}
