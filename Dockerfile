# Images of the operator and of the executor, for people who have Docker:
#
#   docker build --target operator -t sandbox-operator .
#   docker build --target executor -t sandbox-executor .
#
# `hack/image operator|executor` makes the same without Docker. Each holds one static program, run as 65532.
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked -p operator -p executor --bins \
	&& mkdir /out && cp target/*/release/sandbox-operator target/*/release/sandbox-executor /out/ \
	&& chmod 755 /out/*

FROM scratch AS executor
LABEL org.opencontainers.image.title="sandbox-executor" \
	org.opencontainers.image.description="Sandbox Operator: supervisor and action execution server of sandboxes" \
	org.opencontainers.image.version="0.1.0" \
	org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/sandbox-executor /sandbox-executor
USER 65532:65532
ENTRYPOINT ["/sandbox-executor"]

FROM scratch AS operator
LABEL org.opencontainers.image.title="sandbox-operator" \
	org.opencontainers.image.description="Sandbox Operator: controller and gateway" \
	org.opencontainers.image.version="0.1.0" \
	org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/sandbox-operator /sandbox-operator
USER 65532:65532
ENTRYPOINT ["/sandbox-operator"]
