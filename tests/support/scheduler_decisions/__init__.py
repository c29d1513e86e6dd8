"""What a real kube-scheduler decided over openb's pods, how that is recorded, and what the embedded one says to it."""
