//! The life of an installation on a real cluster, from an empty one to an empty one.

use tests::binaries::root;
use tokio::time::Instant;

use crate::release::{IMAGE, NAME, NAMESPACE, Release, SANDBOXES, api_key, names};
use crate::{
    admin, builds, dns, doctor, generated_files, idle, isolation, kubeconfig, limits, packages,
    rbac, render, upgrade,
};
use tests::cli_tools::{CRDS_CHART, apply, get, helm, kubectl, run, text, until, wait};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real cluster: make test-cluster"]
async fn the_charts_on_a_real_cluster() {
    let mut steps = Steps::new();
    render::charts_pass_lint();
    render::values_that_cannot_work_are_refused_with_a_sentence();
    render::values_of_an_earlier_chart_that_lack_one_are_refused_or_do_without();
    generated_files::the_manifests_are_the_rendered_chart();
    packages::the_package_is_complete();
    render::urls_of_every_form_have_their_hosts();
    render::roles_of_users_are_aggregated();
    render::controller_has_a_pod_disruption_budget();
    render::all_namespaces_reach_the_controller();
    render::console_is_served_on_request();
    render::controller_may_keep_the_answers_of_probes();
    steps.done("renders");

    dns::serve();
    let release = Release::plan();
    release.install();
    steps.done("both charts from nothing to ready");
    render::the_api_server_takes_every_render();
    steps.done("the API server checks every render");
    sandbox_with_kubectl();
    steps.done("a sandbox with kubectl");
    first_session(&release);
    steps.done("the first session");
    helm(&["test", NAME, "--namespace", NAMESPACE]);
    steps.done("helm test");
    doctor::finds_nothing_wrong(&release);
    steps.done("doctor");
    kubeconfig::is_enough_for_sandboxes_and_keys();
    steps.done("the command with a kubeconfig alone");
    kubeconfig::reaches_a_gateway_with_tls(&release);
    steps.done("a gateway with TLS");
    admin::configs(&release).await;
    rbac::every_verb_has_its_scene(&release).await;
    steps.done("scenes for verbs");
    idle::pauses_and_wakes(&release).await;
    steps.done("idle pause and wake");
    limits::hold_for_all_sandboxes_of_a_namespace();
    steps.done("a policy of limits");
    upgrade::a_command_survives(&release).await;
    steps.done("upgrade and rollback under a command");
    isolation::holds_where_policies_are_enforced(&release).await;
    steps.done("isolation of the network");
    rbac::granted_is_what_is_used();
    rbac::priority_levels_are_used();
    builds::are_made_where_only_the_controller_creates_pods(&release).await;
    steps.done("a full image build");
    uninstall_leaves_the_data(&release).await;
    steps.done("uninstall and install anew");
    purge_leaves_nothing(&release);
    steps.done("purge");
}

/// Says how long each step took.
struct Steps(Instant);

impl Steps {
    fn new() -> Self {
        println!();
        Self(Instant::now())
    }

    fn done(&mut self, what: &str) {
        println!("{:5.1} s  {what}", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

fn sandbox_with_kubectl() {
    let sample = text("manifests/samples/sandbox.yaml").replace("debian:12", IMAGE);
    apply(&sample, &["-n", SANDBOXES]);
    wait(SANDBOXES, "condition=Ready", "demo");
    kubectl(&["delete", "sandbox", "demo", "-n", SANDBOXES]);
}

fn first_session(release: &Release) {
    let script = root().join("examples/first-session.sh");
    let output = std::process::Command::new(script)
        .env("SANDBOX_API_URL", &release.url)
        .env("SANDBOX_API_KEY", api_key())
        .env("SANDBOX_IMAGE", IMAGE)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
}

/// Sandboxes run on without an operator, and one that is installed anew knows them and their keys.
async fn uninstall_leaves_the_data(release: &Release) {
    let (before, key) = (names(SANDBOXES, "sandboxes"), api_key());
    let claims = names(SANDBOXES, "persistentvolumeclaims");
    assert!(!before.is_empty() && !claims.is_empty());
    helm(&["uninstall", NAME, "--namespace", NAMESPACE, "--wait"]);
    assert_eq!(names(SANDBOXES, "sandboxes"), before);
    assert_eq!(names(SANDBOXES, "persistentvolumeclaims"), claims);

    release.helm("install", &[]);
    assert_eq!(api_key(), key);
    let id = upgrade::sandbox();
    let info = release.client().runtime(id).await.unwrap();
    assert!(info.is_ready(), "{info:?}");
}

fn purge_leaves_nothing(release: &Release) {
    release.helm("upgrade", &["--set=uninstall.purge=true"]);
    let pool = text("manifests/samples/pool.yaml").replace("name: default", "name: left");
    apply(&pool, &["-n", SANDBOXES]);
    helm(&["uninstall", NAME, "--namespace", NAMESPACE, "--wait"]);
    let of_sandboxes =
        "sandboxes sandboxpools pods persistentvolumeclaims secrets services roles networkpolicies";
    for kind in of_sandboxes.split(' ') {
        assert_eq!(names(SANDBOXES, kind), [""; 0], "{kind}");
    }
    until("the operator's Pods are gone", || {
        names(NAMESPACE, "pods").is_empty()
    });
    assert_eq!(names(NAMESPACE, "secrets"), ["sandbox-operator-admin"]);
    assert_eq!(names(NAMESPACE, "configmaps"), ["kube-root-ca.crt"]);
    for kind in ["leases", "roles", "rolebindings", "jobs", "deployments"] {
        assert_eq!(names(NAMESPACE, kind), [""; 0], "{kind}");
    }
    assert_eq!(names(NAMESPACE, "serviceaccounts"), ["default"]);
    rbac::purge_uses_its_rights();
    the_crds_go_last();
}

/// By default they are kept, because everything goes with them.
fn the_crds_go_last() {
    let crds = || get(&["crds"])["items"].as_array().unwrap().len();
    helm(&["uninstall", "crds", "--wait"]);
    assert_eq!(crds(), 4);
    helm(&["install", "crds", CRDS_CHART, "--set", "keep=false"]);
    helm(&["uninstall", "crds", "--wait"]);
    until("the resources are gone", || crds() == 0);
    let output = run("kubectl", &["get", "sandboxes"]);
    assert!(!output.status.success());
}
