//! The chart of the resources as an earlier release could have had it: without rules for amounts and
//! without templates of Pods, and with explicit nulls.

use serde_yaml::Value;
use tests::cli_tools::{CRDS_CHART, run, text};

pub(crate) fn chart() -> tempfile::TempDir {
    let chart = tempfile::tempdir().unwrap();
    let folder = chart.path();
    let copied = ["-r", &format!("{CRDS_CHART}/."), folder.to_str().unwrap()];
    assert!(run("cp", &copied).status.success());
    let about = text(&format!("{CRDS_CHART}/Chart.yaml"));
    let earlier = about.replace("0.1.0", "0.0.1");
    assert_ne!(earlier, about);
    std::fs::write(folder.join("Chart.yaml"), earlier).unwrap();
    for file in ["sandboxes.yaml", "sandboxpools.yaml"] {
        let path = folder.join("files").join(file);
        let today = serde_yaml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut crd = Value::clone(&today);
        make_older(&mut crd);
        assert_ne!(crd, today, "{file}");
        std::fs::write(&path, serde_yaml::to_string(&crd).unwrap()).unwrap();
    }
    chart
}

fn make_older(schema: &mut Value) {
    match schema {
        Value::Mapping(fields) => {
            if fields.contains_key("x-kubernetes-int-or-string") {
                for rule in ["x-kubernetes-validations", "pattern", "minimum"] {
                    fields.remove(rule);
                }
            }
            if let Some(properties) = fields.get_mut("properties").and_then(Value::as_mapping_mut) {
                properties.remove("podTemplate");
                if let Some(Value::Mapping(class)) = properties.get_mut("runtimeClassName") {
                    class.insert("nullable".into(), true.into());
                }
            }
            fields.values_mut().for_each(make_older);
        }
        Value::Sequence(entries) => entries.iter_mut().for_each(make_older),
        _ => {}
    }
}
