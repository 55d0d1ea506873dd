# `make help` lists the targets. The two that matter on a new machine are `make run` and `make test`.

# `make run` and tests use the dev profile, with one set of features; benchmarks and images use release.
TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
RELEASE = $(TARGET_DIR)/$(HOST)/release
DEV = $(TARGET_DIR)/$(HOST)/debug
STATE ?= .state

.DEFAULT_GOAL := help
.PHONY: help run test test-cluster test-long lint generate console docs package compare-browser bench-browser bench-checkpoint bench-cp bench-persistence bench-persistence-node bench-start bench-executor bench-controller bench-claim bench-events bench-images bench-node bench-proxy fuzz clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Build the programs and start the operator on this machine, without a cluster (ARGS="--help" for flags)
	hack/install base
	cargo build --locked --workspace --bin sandbox-standalone --bin sandbox-executor --bin sandbox-operator --bin sandbox
	$(DEV)/sandbox-standalone --state-dir $(STATE) $(ARGS)

test: ## Install what the tests need, then run all of them, a real cluster included
	hack/install base browser cluster criu h2spec images monitoring shells
	hack/test

test-cluster: ## Run the tests that need a real Kubernetes: it is started, used and removed
	hack/install base cluster
	hack/test-cluster

test-long: ## Run all tests at full size: 10 000 starts, a day of faults with 1 000 sandboxes, gigabytes, streams of an hour
	hack/install base browser cluster criu h2spec images monitoring shells
	CARGO_PROFILE_DEV_OPT_LEVEL=2 LONG_TESTS=1 NEXTEST_PROFILE=long hack/test

lint: ## Check format, lints, import cycles, references and wording, and that console/dist is built from its source
	! command -v npm >/dev/null || hack/install console
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	hack/lint

generate: ## Write what is generated: manifests, CRDs and dashboards of the chart, docs/lifecycle.md, docs/values.md
	cargo run -q --locked -p crds --bin crdgen -- manifests/crds
	cp manifests/crds/*.yaml charts/sandbox-operator-crds/files/
	hack/dashboards
	hack/manifests
	UPDATE_DOCS=1 cargo test -q --locked --workspace --test chart values_doc_matches_chart
	UPDATE_DOCS=1 cargo test -q --locked --workspace --lib lifecycle_doc_matches_planner

console: ## Build the console (console/dist), which the gateway embeds
	hack/install console
	cd console && npm run build

docs: ## Build docs/ as a site with a search, in target/docs; a broken link or anchor fails
	hack/install docs
	hack/docs/build $(abspath $(or $(CARGO_TARGET_DIR),target))/docs

package: ## What a release consists of, in target/package: charts, programs and images for amd64 and arm64, SBOM (URL=https://...)
	hack/install package
	VERSION="$(VERSION)" URL="$(URL)" PROFILE="$(PROFILE)" hack/package $(abspath $(or $(CARGO_TARGET_DIR),target))/package

compare-browser: ## Browser beside BrowserGym on the same pages, field by field (ARGS="--only article,odd-*")
	hack/install browser
	cargo build --release --locked -p browser --example browser_driver
	python=$$(hack/browsergym/install) && $$python hack/browsergym/compare.py $(ARGS) $(abspath $(RELEASE))/examples/browser_driver

bench-browser: ## Browser beside BrowserGym: start, steps, a page of 6 000 elements, memory
	hack/install browser
	cargo build --release --locked -p browser --example browser_driver
	cargo build --release --locked -p executor --bin sandbox-executor
	python=$$(hack/browsergym/install) && $$python hack/browsergym/bench.py --executor $(abspath $(RELEASE))/sandbox-executor $(ARGS) \
		$(abspath $(RELEASE))/examples/browser_driver

bench-checkpoint: ## Dump and restore of processes with 30 MiB to 1 GiB, into an encrypted archive
	hack/install criu
	cargo build --release --locked -p checkpoint --example bench_checkpoint
	$(RELEASE)/examples/bench_checkpoint $$(hack/criu/install)

bench-cp: ## sandbox cp in standalone: 2 GiB and a tree of 10 000 files, both ways, beside curl through the same gateway
	hack/install base
	cargo build --release --locked -p executor -p standalone -p cli -p tests --bins --example bench_copy
	RUST_LOG=warn $(RELEASE)/examples/bench_copy $(RELEASE)

bench-persistence: ## Pauses and resumes in standalone by level: files, and processes with 30 MiB to 1 GiB
	hack/install base criu
	cargo build --release --locked -p executor -p standalone -p tests --bins --example bench_persistence
	RUST_LOG=warn $(RELEASE)/examples/bench_persistence $(RELEASE) $$(hack/criu/install)

bench-persistence-node: ## The same on a real node with user namespaces, a new Pod each time
	hack/install base cluster criu
	cargo build --release --locked -p executor -p operator -p tests --bin sandbox-executor --bin sandbox-operator --example bench_persistence
	hack/image executor-criu $(RELEASE)/sandbox-executor $(TARGET_DIR)/executor.tar
	hack/cluster run --name bench-pause --containerd-2 -- sh -euc 'hack/cluster load-image --name bench-pause $(TARGET_DIR)/executor.tar "$$(hack/image sandbox)"; \
		EXECUTOR_INJECTION=auto SANDBOX_MEMORY_PERSISTENCE=true hack/cluster.d/with-operator $(RELEASE)/sandbox-operator hack/cluster.d/with-probes \
		sh -euc "exec $(RELEASE)/examples/bench_persistence \$$OPERATOR_API cluster-test-key localhost/sandbox-test:1"; \
		SANDBOX_WARM_RESUME_FOR=10m EXECUTOR_INJECTION=auto SANDBOX_MEMORY_PERSISTENCE=true hack/cluster.d/with-operator $(RELEASE)/sandbox-operator hack/cluster.d/with-probes \
		sh -euc "exec $(RELEASE)/examples/bench_persistence \$$OPERATOR_API cluster-test-key localhost/sandbox-test:1 waiting"'

bench-start: ## Cold start to first action in standalone, and the executor's own figures
	cargo build --release --locked -p executor -p standalone -p tests --examples --bins
	$(RELEASE)/examples/bench_start $(RELEASE)
	$(MAKE) bench-executor

bench-executor: ## Executor: start, memory, echo and cell round trips, size; the Python server's beside them where it can be had
	hack/install base
	cargo build --release --locked -p executor --bins --examples
	python=$$(hack/python-server/install) || true; \
	kernel=$$(hack/python-kernel/install) || true; \
	skills=$$(hack/python-kernel/install skills) || true; \
	agent=$$(hack/python-server/install agent) || true; \
	$(RELEASE)/examples/bench_executor $${python:+--python "$$python"} $${kernel:+--kernel "$$kernel"} \
		$${skills:+--skills "$$skills"} $${agent:+--agent "$$agent"} $(RELEASE)/sandbox-executor

bench-controller: ## Controller: starts and passes per second, CPU and memory at 10 000 and 100 000 sandboxes
	cargo run --release --locked -p tests --example bench_controller

bench-claim: ## Claims of warm Pods on a real API server with fake nodes, beside bare Pods (ARGS="sandbox start agent-sandbox")
	hack/install base cluster
	$(if $(findstring agent-sandbox,$(ARGS)),hack/agent-sandbox/build)
	cargo build --release --locked -p tests --examples
	hack/cluster run --name bench-claim --audit --fake-nodes 100 -- $(RELEASE)/examples/bench_claim $(ARGS)

bench-images: ## Images in standalone: pulls beside skopeo and containerd, starts by size, disk, builds beside buildah (ARGS="builds")
	hack/install base bench cluster images
	cargo build --release --locked -p executor -p standalone -p tests --bins --examples
	RUST_LOG=warn $(RELEASE)/examples/bench_images $(RELEASE) $(ARGS)

bench-node: ## Warm starts on a real node: /start to the first action, one by one and at once
	hack/install base cluster
	cargo build --release --locked -p executor -p operator -p tests --examples --bins
	hack/image executor $(RELEASE)/sandbox-executor $(TARGET_DIR)/executor.tar
	hack/cluster run --name bench-node -- sh -euc 'hack/cluster load-image --name bench-node $(TARGET_DIR)/executor.tar "$$(hack/image node)"; \
		hack/cluster.d/with-operator $(RELEASE)/sandbox-operator $(RELEASE)/examples/bench_node'

bench-proxy: ## Gateway: requests, tunnels, large bodies and memory, beside a direct connection and nginx
	hack/install bench
	cargo run --release --locked -p operator --example bench_proxy

bench-events: ## Gateway: CPU of 200 event streams with 5 000 sandboxes, at rest and at 50 changes per second
	cargo run --release --locked -p operator --example bench_events

fuzz: ## Fuzz what executor and gateway read from strangers, TIME=60 seconds each (ARGS="screen paths archive action route")
	hack/install fuzz
	TIME=$(or $(TIME),60) hack/fuzz $(ARGS)

clean: ## Remove build results of this checkout
	cargo clean
