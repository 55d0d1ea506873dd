//! Pods that build images. A build needs what no sandbox gets: mounts and namespaces of its own, with
//! all capabilities of a user namespace that it shares with no sandbox.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use super::volumes::{VolumeError, relative};

/// Pods that may be privileged and mount directories of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageBuildPods {
    /// Their namespace, which has no others.
    pub namespace: String,
    /// Directory that `hostPath` volumes are below. Its entries are changed by the host only.
    pub directory: PathBuf,
}

impl ImageBuildPods {
    /// True for Pods of the namespace that ask for a user namespace.
    pub(crate) fn contain(&self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref();
        pod.metadata.namespace.as_ref() == Some(&self.namespace)
            && spec.is_some_and(|spec| spec.host_users == Some(false))
    }

    /// Directory of a `hostPath` volume.
    pub(crate) fn host_path(&self, path: &str) -> Result<PathBuf, VolumeError> {
        let below = Path::new(path).strip_prefix(&self.directory);
        let below = below.ok().and_then(Path::to_str);
        let below = below.ok_or_else(|| VolumeError::HostPath(path.to_owned()))?;
        Ok(self.directory.join(relative(below)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn builds() -> ImageBuildPods {
        ImageBuildPods {
            namespace: "builds".into(),
            directory: "/state/image-builds".into(),
        }
    }

    #[test]
    fn only_pods_of_the_namespace_with_users_of_their_own_build() {
        for (namespace, host_users, expected) in [
            ("builds", json!(false), true),
            ("builds", json!(true), false),
            ("builds", json!(null), false),
            ("default", json!(false), false),
        ] {
            let pod = serde_json::from_value(json!({
                "metadata": {"namespace": namespace},
                "spec": {"containers": [], "hostUsers": host_users},
            }));
            assert_eq!(
                builds().contain(&pod.unwrap()),
                expected,
                "{namespace} {host_users}"
            );
        }
    }

    #[test]
    fn host_paths_stay_below_the_directory() {
        let path = builds().host_path("/state/image-builds/1/context").unwrap();
        assert_eq!(path, Path::new("/state/image-builds/1/context"));
        for bad in [
            "/state/image-builds",
            "/state/image-builds/",
            "/state/image-builds/../volumes",
            "/state/image-builds-2/x",
            "/etc",
            "image-builds/1",
            "",
        ] {
            assert!(builds().host_path(bad).is_err(), "{bad}");
        }
    }
}
