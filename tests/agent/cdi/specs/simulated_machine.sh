#!/bin/sh
# The inner half of generate.sh, in a mount namespace: one simulated machine after the other.
set -eu
version=615.71.09
libraries="libcuda libcudadebugger libnvidia-ml libnvidia-nvvm libnvidia-ptxjitcompiler libnvidia-opencl libnvidia-cfg
libnvidia-gpucomp libnvidia-allocator libnvidia-rtcore libGLX_nvidia libnvidia-encode libnvcuvid"

# A folder as the root of an installed driver: $1. Its NVML is the stub.
install_driver() {
	mkdir -p "$1/usr/lib/x86_64-linux-gnu" "$1/usr/bin" "$1/usr/lib/firmware/nvidia/$version"
	for library_name in $libraries; do
		: >"$1/usr/lib/x86_64-linux-gnu/$library_name.so.$version"
		ln -sf "$library_name.so.$version" "$1/usr/lib/x86_64-linux-gnu/$library_name.so.1"
	done
	cp "$library" "$1/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.$version"
	for program in nvidia-smi nvidia-debugdump nvidia-persistenced nvidia-cuda-mps-control nvidia-cuda-mps-server; do
		cp /bin/true "$1/usr/bin/$program"
	done
	: >"$1/usr/lib/firmware/nvidia/$version/gsp_tu10x.bin"
}

# Device nodes of $2 cards below the folder $1.
make_nodes() {
	mkdir -p "$1/dev/nvidia-caps" "$1/dev/dri"
	mknod "$1/dev/nvidiactl" c 195 255
	mknod "$1/dev/nvidia-modeset" c 195 254
	mknod "$1/dev/nvidia-uvm" c 511 0
	mknod "$1/dev/nvidia-uvm-tools" c 511 1
	card=0
	while [ $card -lt "$2" ]; do
		mknod "$1/dev/nvidia$card" c 195 $card
		mknod "$1/dev/dri/card$card" c 226 $card
		mknod "$1/dev/dri/renderD$((128 + card))" c 226 $((128 + card))
		bus=$(printf '0000:%02x:00.0' $((card + 1)))
		mkdir -p "$1/sys/bus/pci/devices/$bus/drm/card$card" "$1/sys/bus/pci/devices/$bus/drm/renderD$((128 + card))"
		card=$((card + 1))
	done
	capability=1
	while [ $capability -le 10 ]; do
		mknod "$1/dev/nvidia-caps/nvidia-cap$capability" c 237 $capability
		capability=$((capability + 1))
	done
	mkdir -p "$1/proc/driver/nvidia-caps"
	# Minors as the driver numbers them: config, monitor, then each instance and its compute instance.
	printf '%s\n' "config 1" "monitor 2" \
		"gpu0/gi1/access 3" "gpu0/gi1/ci0/access 4" "gpu0/gi2/access 5" "gpu0/gi2/ci0/access 6" \
		"gpu0/gi3/access 7" "gpu0/gi3/ci0/access 8" "gpu0/gi4/access 9" "gpu0/gi4/ci0/access 10" \
		>"$1/proc/driver/nvidia-caps/mig-minors"
}

# Enter a machine with $2 cards of the profile $1, whose driver is installed in $3.
start_machine() {
	machine=$scratch/machine
	mkdir -p "$machine"
	mount -t tmpfs tmpfs "$machine"
	mkdir "$machine/upper" "$machine/work" "$machine/root" "$machine/lower"
	mount --bind / "$machine/lower"
	make_nodes "$machine/upper" "$2"
	install_driver "$machine/upper$3"
	cp "$scratch/nvidia-ctk" "$scratch/mig_spec" "$machine/upper/"
	cp "$scratch/$1.state" "$machine/upper/nvml.state"
	mount -t overlay overlay -o "lowerdir=$machine/lower,upperdir=$machine/upper,workdir=$machine/work" "$machine/root"
}

stop_machine() {
	umount "$machine/root" "$machine/lower" "$machine"
}

# The arguments of nvidia-ctk, and where its spec goes: $1.
generate_spec() {
	file=$1
	shift
	VRAMPACK_NVML_STATE=/nvml.state chroot "$machine/root" /nvidia-ctk --quiet cdi generate --format=json "$@" >"$here/$file"
}

operator=/run/nvidia/driver
start_machine v100x8 8 $operator
# What a GPU Operator without NVIDIA's device plugin leaves in /var/run/cdi.
generate_spec management.json --driver-root=$operator/ --dev-root=/ --mode=management --vendor=management.nvidia.com \
	--class=gpu --nvidia-cdi-hook-path=/usr/local/nvidia/toolkit/nvidia-cdi-hook
# What NVIDIA's device plugin writes: by uuid.
generate_spec device-plugin.json --driver-root=$operator/ --dev-root=/ --mode=nvml --vendor=k8s.device-plugin.nvidia.com \
	--class=gpu --device-name-strategy=uuid --nvidia-cdi-hook-path=/usr/local/nvidia/toolkit/nvidia-cdi-hook
stop_machine

start_machine h200x8 8 ""
# What nvidia-cdi-refresh of a host with the toolkit's packages writes: by index and by uuid.
generate_spec host.json --mode=nvml --device-name-strategy=index --device-name-strategy=uuid
stop_machine

start_machine v100x8 1 ""
# The same of a card that is cut in two, and what the GPU Operator leaves there.
chroot "$machine/root" /mig_spec MIG-13de6746-88b7-5d57-b0c6-59e07b3fb387 MIG-3d0815d4-78bd-5e07-8184-66138b3b3c8e /host-mig.json
cp "$machine/upper/host-mig.json" "$here/host-mig.json"
generate_spec management-mig.json --mode=management --vendor=management.nvidia.com --class=gpu
stop_machine
