//! The table of transitions in `docs/lifecycle.md`, compared with the planner. `UPDATE_DOCS=1`
//! writes the table into the document.

use std::fmt::Write as _;
use std::path::Path;

use super::transitions::{Transition, transitions};
use super::*;
use gateway::runtime_status::derive;

const BEGIN: &str = "<!-- rows: tested against the code -->\n";
const END: &str = "<!-- end of rows -->";

#[test]
fn lifecycle_doc_matches_planner() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lifecycle.md");
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
        "| Phase | Condition | Next phase, reason | Runtime API | Action of the controller |\n\
         |---|---|---|---|---|\n",
    );
    for transition in transitions() {
        writeln!(text, "{}", row(transition)).unwrap();
    }
    text
}

fn row(mut transition: Transition) -> String {
    let from = transition.fixture.status().phase;
    let plan = match &transition.rejection {
        None => transition.fixture.plan_and_apply(),
        Some(rejection) => refused(&transition.fixture, rejection),
    };
    let mut entry = transition.fixture.entry.clone();
    entry.status = plan.status.clone();
    let status = &plan.status;
    let reason = status
        .reason
        .map_or("–".into(), |reason| reason.to_string());
    let runtime = derive(&entry);
    let api = format!("{:?}", runtime.lifecycle).to_lowercase();
    format!(
        "| {from:?} | {} | {:?}, {reason} | {api}, {} | {} |",
        transition.description,
        status.phase,
        serde_json::to_value(runtime.pod).unwrap().as_str().unwrap(),
        actions_text(&plan)
    )
}

/// The plan after the rejection of its actions.
fn refused(fixture: &PlanFixture, rejection: &ActionRejection) -> Plan {
    let mut plan = fixture.plan();
    assert!(creates_pod(&plan).is_some(), "no action to reject");
    plan.status = fixture.status_after_rejection(rejection);
    plan.actions.clear();
    (plan.write_status, plan.requeue_at) = (true, None);
    plan
}

fn actions_text(plan: &Plan) -> String {
    let mut texts: Vec<_> = plan.actions.iter().map(action_text).collect();
    if plan.probe_readiness && plan.status.phase != Phase::Running {
        texts.push("probes readiness");
    }
    if plan.check_idle {
        texts.push("checks idle time");
    }
    if !plan.write_status {
        texts.push("writes no status yet");
    }
    if texts.is_empty() {
        texts.push("–");
    }
    texts.join("; ")
}

fn action_text(action: &Action) -> &'static str {
    match action {
        Action::IsolateNamespace => "isolates the namespace",
        Action::CreateClaim => "creates the PVC",
        Action::CreatePod { .. } => "creates the Pod",
        Action::CreateWaitingPod { .. } => "creates a Pod that waits",
        Action::CaptureLog => "reads the log",
        Action::DeletePod {
            grace: DeletionGrace::PodDefault,
            ..
        } => "deletes the Pod",
        Action::DeletePod {
            grace: DeletionGrace::Force,
            ..
        } => "force-deletes the Pod",
        Action::DeleteClaim { .. } => "deletes the PVC",
        Action::AdoptClaim { .. } => "takes over the PVC",
        Action::ClaimPod { .. } => "claims a warm Pod",
        Action::ResizePod => "raises the resources of the Pod",
        Action::CreateSecret => "creates the environment Secret",
        Action::DropSealedEnv => "drops the sealed environment",
        Action::DeleteSandbox => "deletes the object",
    }
}
