#!/bin/sh
# Regenerates the specs of this folder: NVIDIA's own nvidia-ctk, built from Go modules, on a simulated machine.
#
#     sh tests/agent/cdi/specs/generate.sh        (as root, on Linux, with Go, gcc and the project's .venv)
#
# The machine is an overlay of `/` in a mount namespace of its own: device nodes, files named as the driver's libraries
# are, and the stub of NVML that the agent's tests use. nvidia-ctk takes it for a machine with cards.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../../../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd "$here" && CGO_ENABLED=1 go build -o "$scratch/nvidia-ctk" github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk &&
	CGO_ENABLED=1 go build -o "$scratch/mig_spec" .)
library=$(cd "$repository" && .venv/bin/python -m tests.fakes.nvml.build "$scratch")
for profile in v100x8 h200x8; do
	(cd "$repository" && .venv/bin/python -m tests.fakes.nvml.machine "$scratch/$profile.state" "$profile")
done
export here scratch library
exec unshare --mount --propagation private --fork sh "$here/simulated_machine.sh"
