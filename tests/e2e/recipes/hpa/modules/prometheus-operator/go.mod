// Of Prometheus Operator only the definitions of its resources are used; nothing of it is built.
module vrampack.dev/tests/e2e/recipes/hpa/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
