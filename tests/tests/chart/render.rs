//! Rendered charts: valid values, whose objects a real API server accepts, and invalid values, each
//! with its message.

use serde_json::{Value, json};

use crate::release::{NAMESPACE, SANDBOXES};
use tests::cli_tools::{CHART, CRDS_CHART, file, helm, run, text, try_kubectl};

const HOST: &str = "baseUrl=https://rt.example.com";

pub(crate) fn charts_pass_lint() {
    helm(&["lint", "--strict", CRDS_CHART]);
    helm(&["lint", "--strict", CHART, "--set", HOST]);
    for values in sets() {
        helm(&["lint", "--strict", CHART, "--values", &values]);
    }
}

/// The files of `charts/sandbox-operator/ci`.
fn sets() -> Vec<String> {
    let folder = std::fs::read_dir(file("charts/sandbox-operator/ci")).unwrap();
    let paths = folder.map(|entry| entry.unwrap().path().display().to_string());
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    assert!(paths.len() > 2);
    paths
}

/// Values that cannot work, and what is said of them.
const REFUSED: &str = r#"
    baseUrl= | baseUrl is missing: it is the URL under which clients reach the gateway
    baseUrl=rt.example.com | it must be a scheme and a host without a path
    baseUrl=https://rt.example.com/api | it must be a scheme and a host without a path
    urlForm=subdomain | it must be nested, flat or path
    urlForm=loopback | that is for clients on the gateway's own machine
    baseUrl=https://localhost,urlForm=flat | has no parent domain
    baseUrl=http://10.0.0.1:5000 | has no names below it; take path
    sandboxes.limits.memory=much | sandboxes.limits.memory is "much": it is no quantity
    sandboxes.workspace.size=10GB | sandboxes.workspace.size is "10GB": it is no quantity
    apiKeys.maxCpu=all | apiKeys.maxCpu is "all": it is no quantity
    sandboxes.idleTimeout=20 | at '/sandboxes/idleTimeout': got number, want string
    sandboxes.idleTimeout=soon | write it as 90s, 20m or 24h
    sandboxes.maxResourceFactor=0 | must be greater than 0
    sandboxes.createNamespace=true | name another namespace than the release's
    controller.replicas=0 | controller.replicas is 0: one at least has to act
    gateway.replicas=-1 | gateway.replicas is -1: one at least has to answer
    gateway.autoscaling.enabled=true,gateway.autoscaling.maxReplicas=1 | the fewest must not be more than the most
    apiKeys.records[0].name=a,apiKeys.records[0].sha256=b | apiKeys.records and apiKeys.create exclude each other
    apiKeys.create=false,apiKeys.records[0].name=a,apiKeys.records[0].sha256=b | it is the hash of a key, not the key
    httpRoute.enabled=true | name the Gateways it belongs to
    gateway.proxyProtocol=true | name the proxies in gateway.trustedProxies
    pool.enabled=true | the pool needs an image
    sandboxes.extraConfigMaps[0].name=a,sandboxes.extraConfigMaps[0].path=b | it must begin with /
    sandboxes.imageBuilds=full,sandboxes.namespace=sandbox-builds | builds need a namespace of their own
    sandboxes.imageBuilds=full,builds.memory=much | builds.memory is "much": it is no quantity
    tracing.endpoint=collector:4317 | it must be a URL of OTLP over HTTP
    tracing.samplerRatio=2 | at '/tracing/samplerRatio'
    uninstall.purge=true,sandboxes.allNamespaces=true | purge knows one namespace
    gateway.replicas=two | at '/gateway/replicas': got string, want integer
    gatway.replicas=2 | additional properties 'gatway' not allowed
    image.pullPolicy=Sometimes | at '/image/pullPolicy'
    gateway.service.port=70000 | at '/gateway/service/port'
"#;

pub(crate) fn values_that_cannot_work_are_refused_with_a_sentence() {
    for row in REFUSED.trim().lines() {
        let (values, sentence) = row.trim().split_once(" | ").unwrap();
        let mut args = vec!["template", "x", CHART];
        for value in [HOST, values] {
            args.extend(["--set", value]);
        }
        let output = run("helm", &args);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{values} is taken");
        assert!(complaint.contains(sentence), "{values}: {complaint}");
    }
}

/// Maps of any keys, whose parts are the user's to drop.
const FREE: [&str; 5] = [
    "sandboxes.requests",
    "sandboxes.limits",
    "controller.resources",
    "gateway.resources",
    "networkPolicy.dns.",
];

/// `helm upgrade --reuse-values` gives this chart the values of an earlier one, which lack those that are new.
/// Either the chart does without as it does with their defaults, or it names what is missing: never does it render
/// something else.
pub(crate) fn values_of_an_earlier_chart_that_lack_one_are_refused_or_do_without() {
    let values = helm(&["show", "values", CHART]);
    let values: serde_yaml::Value = serde_yaml::from_str(&values).unwrap();
    let mut paths = Vec::new();
    keys("", &values, &mut paths);
    paths.retain(|path| !FREE.iter().any(|free| path.starts_with(free)));
    assert!(paths.len() > 100);
    let default = ["template", "x", CHART, "--set", HOST];
    let rendered = helm(&default);
    for path in paths {
        let without = format!("{path}=null");
        let output = run("helm", &[&default[..], &["--set", &without]].concat());
        if output.status.success() {
            let same = output.stdout == rendered.as_bytes();
            assert!(same, "without {path} something else is rendered");
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains(&missing(&path)), "without {path}: {said}");
        }
    }
}

/// Helm's text for a missing value.
fn missing(path: &str) -> String {
    let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
    let slash = if section.is_empty() { "" } else { "/" };
    let section = section.replace('.', "/");
    format!("at '{slash}{section}': missing property '{name}'")
}

/// The paths of all values, as `--set` takes them.
fn keys(prefix: &str, value: &serde_yaml::Value, all: &mut Vec<String>) {
    let Some(map) = value.as_mapping() else {
        return;
    };
    for (key, value) in map {
        let key = key.as_str().unwrap().replace('.', "\\.");
        let path = format!("{prefix}{key}");
        keys(&format!("{path}."), value, all);
        all.push(path);
    }
}

/// Users get access to sandboxes by the cluster roles of Kubernetes.
pub(crate) fn roles_of_users_are_aggregated() {
    let render = |flag: &str| {
        let rendered = helm(&["template", "x", CRDS_CHART, "--set", flag]);
        let mut objects = documents(&rendered);
        objects.retain(|object| object["kind"] == "ClusterRole");
        objects
    };
    let roles = render("keep=true");
    for (name, aggregates, verb) in [
        ("sandbox-operator-view", &["view"][..], "watch"),
        ("sandbox-operator-edit", &["edit", "admin"], "patch"),
    ] {
        let mut named = roles.iter().filter(|r| r["metadata"]["name"] == name);
        let role = named.next().unwrap();
        for to in aggregates {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
            assert_eq!(role["metadata"]["labels"][label], "true", "{role}");
        }
        let verbs = role["rules"][0]["verbs"].as_array().unwrap();
        assert!(verbs.contains(&json!(verb)), "{role}");
    }
    assert_eq!(render("aggregateRoles=false"), Vec::<Value>::new());
}

pub(crate) fn controller_has_a_pod_disruption_budget() {
    let render = |flag: &str| {
        let rendered = helm(&["template", "x", CHART, "--set", HOST, "--set", flag]);
        let mut objects = documents(&rendered);
        objects.retain(|object| {
            let component =
                &object["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"];
            object["kind"] == "PodDisruptionBudget" && component == "controller"
        });
        objects
    };
    let budgets = render("controller.podDisruptionBudget.maxUnavailable=2");
    assert_eq!(budgets[0]["spec"]["maxUnavailable"], 2);
    assert!(render("controller.podDisruptionBudget.enabled=false").is_empty());
}

/// It runs probes unless neither user namespaces nor level `Memory` are asked for.
pub(crate) fn controller_may_keep_the_answers_of_probes() {
    for (namespaces, memory, may) in [
        ("auto", false, true),
        ("always", false, true),
        ("never", true, true),
        ("never", false, false),
    ] {
        let set = format!(
            "--set={HOST},sandboxes.userNamespaces={namespaces},sandboxes.persistence.memory={memory}"
        );
        let rendered = helm(&["template", "x", CHART, &set]);
        let found = rendered.contains("sandbox-operator-cluster-probes");
        assert_eq!(found, may, "{set}");
    }
}

/// The controller then watches every namespace, and isolates its sandboxes there.
pub(crate) fn all_namespaces_reach_the_controller() {
    for (flag, named) in [
        ("false", "SANDBOX_NAMESPACE"),
        ("true", "SANDBOX_NETWORK_POLICY"),
    ] {
        let set = format!("--set={HOST},sandboxes.allNamespaces={flag}");
        let show = "--show-only=templates/controller.yaml";
        let rendered = helm(&["template", "x", CHART, show, &set]);
        let variables = ["SANDBOX_NAMESPACE", "SANDBOX_NETWORK_POLICY"];
        let found = variables.map(|name| rendered.contains(&format!("- name: {name}\n")));
        assert_eq!(found, variables.map(|name| name == named), "{flag}");
    }
}

pub(crate) fn console_is_served_on_request() {
    for enabled in [false, true] {
        let set = format!("--set={HOST},gateway.console.enabled={enabled}");
        let show = "--show-only=templates/gateway.yaml";
        let rendered = helm(&["template", "x", CHART, show, &set]);
        let variable = "- name: GATEWAY_CONSOLE\n              value: \"true\"\n";
        assert_eq!(rendered.contains(variable), enabled, "{rendered}");
    }
}

pub(crate) fn urls_of_every_form_have_their_hosts() {
    for (form, hosts) in [
        ("nested", &["rt.example.com", "*.rt.example.com"][..]),
        ("flat", &["rt.example.com", "*.example.com"]),
        ("path", &["rt.example.com"]),
    ] {
        let form = format!("urlForm={form}");
        let parents = "httpRoute.parentRefs[0].name=web";
        let on = "ingress.enabled=true,httpRoute.enabled=true";
        let flags = [HOST, &form, parents, on].map(|value| format!("--set={value}"));
        let args = ["template", "x", CHART, "--show-only=templates/ingress.yaml"];
        let flags = flags.each_ref().map(String::as_str);
        let objects = documents(&helm(&[&args[..], &flags].concat()));
        let [ingress, route] = &objects[..] else {
            panic!("{objects:?}");
        };
        let rules = ingress["spec"]["rules"].as_array().unwrap();
        let named: Vec<_> = rules.iter().map(|rule| &rule["host"]).collect();
        assert_eq!(named, hosts);
        assert_eq!(ingress["spec"]["tls"][0]["hosts"], json!(hosts));
        assert_eq!(route["spec"]["hostnames"], json!(hosts));
    }
}

/// The server checks fields, formats and, for Pods of Deployments, nothing: the install does that.
pub(crate) fn the_api_server_takes_every_render() {
    for values in sets() {
        let args = ["template", "other", CHART, "--namespace", NAMESPACE];
        let rendered = helm(&[&args[..], &["--values", &values]].concat());
        let (known, unknown): (Vec<_>, Vec<_>) = documents(&rendered)
            .into_iter()
            .partition(|object| !is_foreign(object));
        assert!(known.len() > 10, "{values}");
        for object in &unknown {
            assert!(object["spec"].is_object(), "{object}");
        }
        let all: Vec<_> = known
            .iter()
            .map(|object| object.to_string() + "\n---\n")
            .collect();
        server_takes(&all.concat());
    }
    server_takes(&text("manifests/policies/sandbox-limits.yaml"));
}

fn server_takes(objects: &str) {
    let apply = "apply --server-side --force-conflicts --dry-run=server --validate=strict -f -";
    let apply: Vec<_> = apply.split(' ').collect();
    try_kubectl(&apply, objects).unwrap_or_else(|said| panic!("{said}"));
}

/// Kinds that the cluster of the tests does not have.
fn is_foreign(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap();
    version.starts_with("monitoring.coreos.com/") || version.starts_with("gateway.networking")
}

/// All objects of a render. Namespaces that do not exist become the one that does.
fn documents(rendered: &str) -> Vec<Value> {
    let parts = rendered
        .split("\n---\n")
        .map(|part| part.trim_start_matches("---\n"));
    let objects = parts.map(|part| serde_yaml::from_str::<Value>(part).unwrap());
    let mut objects: Vec<_> = objects.filter(Value::is_object).collect();
    for object in &mut objects {
        let namespace = &mut object["metadata"]["namespace"];
        if namespace.as_str().is_some_and(|name| name != NAMESPACE) {
            *namespace = SANDBOXES.into();
        }
    }
    objects
}
