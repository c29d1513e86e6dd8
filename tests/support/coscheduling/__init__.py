"""kube-scheduler 1.34 with the plugin Coscheduling of scheduler-plugins v0.34.7, built of its Go module."""
