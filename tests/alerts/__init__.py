"""Rules, alerts and dashboards on the real product with a real Prometheus and Alertmanager (`make alerts-test`)."""
