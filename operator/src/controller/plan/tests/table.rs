//! `docs/lifecycle.md`: every transition as a row that is decided anew whenever the tests run.
//! `UPDATE_DOCS=1 cargo test` writes the rows into the document.

use std::fmt::Write as _;
use std::path::Path;

use super::scenes::{Scene, scenes};
use super::*;
use crate::gateway::api::info::derive;

const BEGIN: &str = "<!-- rows: tested against the code -->\n";
const END: &str = "<!-- end of rows -->";

#[test]
fn the_document_says_what_the_code_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/lifecycle.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (known, after) = rest.split_once(END).unwrap();
    let rows = rows();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{rows}{END}{after}")).unwrap();
    } else {
        assert_eq!(known, rows, "run `make generate`");
    }
}

fn rows() -> String {
    let mut text = String::from(
        "| Phase | What is true or asked for | Next phase, reason | Runtime API | The controller |\n\
         |---|---|---|---|---|\n",
    );
    for scene in scenes() {
        writeln!(text, "{}", row(scene)).unwrap();
    }
    text
}

fn row(mut scene: Scene) -> String {
    let from = scene.world.status().phase;
    let plan = match &scene.refusal {
        None => scene.world.step(),
        Some(refusal) => refused(&scene.world, refusal),
    };
    let mut entry = scene.world.entry.clone();
    entry.status = plan.status.clone();
    let status = &plan.status;
    let reason = status.reason.map_or("–", Reason::as_str);
    let told = derive(&entry);
    let api = format!("{:?}", told.lifecycle).to_lowercase();
    format!(
        "| {from:?} | {} | {:?}, {reason} | {api}, {} | {} |",
        scene.what,
        status.phase,
        told.pod.as_str(),
        deeds(&plan)
    )
}

/// What is left of a plan that is refused.
fn refused(world: &World, refusal: &Refusal) -> Plan {
    let mut plan = world.plan();
    assert!(creates_pod(&plan).is_some(), "nothing was asked for");
    plan.status = world.refuse(refusal);
    plan.actions.clear();
    (plan.reports, plan.next) = (true, None);
    plan
}

fn deeds(plan: &Plan) -> String {
    let mut deeds: Vec<_> = plan.actions.iter().map(deed).collect();
    if plan.asks && plan.status.phase != Phase::Running {
        deeds.push("asks the sandbox whether it is ready");
    }
    if plan.asks_quiet {
        deeds.push("asks since when nothing happens");
    }
    if !plan.reports {
        deeds.push("writes no status yet");
    }
    if deeds.is_empty() {
        deeds.push("–");
    }
    deeds.join("; ")
}

fn deed(action: &Action) -> &'static str {
    match action {
        Action::CreateClaim => "makes the volume claim",
        Action::CreatePod { .. } => "makes the Pod",
        Action::DeletePod {
            grace: Grace::Own, ..
        } => "deletes the Pod",
        Action::DeletePod {
            grace: Grace::None, ..
        } => "removes the Pod by force",
        Action::DeleteClaim => "deletes the volume claim",
        Action::DeleteSecret => "deletes the environment's Secret",
        Action::DeleteSandbox => "deletes the object",
    }
}
