//! The operator that `hack/cluster.d/with-operator` runs outside of the cluster, for all tests.

/// Key of the runtime API in these tests; `with-operator` has its hash.
pub(crate) const API_KEY: &str = "cluster-test-key";

/// The image of the sandboxes, see `hack/image`.
pub(crate) const IMAGE: &str = "localhost/sandbox-test:1";

/// URL of the runtime API, whose sandboxes are in the namespace `default`.
pub(crate) fn api() -> String {
    std::env::var("OPERATOR_API").expect("hack/cluster.d/with-operator sets OPERATOR_API")
}
