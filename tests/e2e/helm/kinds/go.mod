// Whose kinds the chart can make objects of. Only their definitions are read; no program of theirs is built.
module vrampack.dev/tests/e2e/helm/kinds

go 1.26

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
