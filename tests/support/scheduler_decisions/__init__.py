"""What a real kube-scheduler decided about openb's pods, how that is recorded, and whether the embedded one agrees."""
