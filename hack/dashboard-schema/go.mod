// The schema of Grafana's dashboards as its makers publish it: see build.
module sandbox-operator/hack/dashboard-schema

go 1.24

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
