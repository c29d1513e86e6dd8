# What the programs of a node write to by fixed names gets a place of its own, in this mount namespace only. The arguments
# are the command; this shell stays the first process, which reaps every orphan.
set -eu
site=$VRAMPACK_NODE_SITE
mount --make-rshared /
mount -t tmpfs -o mode=0755 tmpfs /run
for folder in /etc /opt /var/lib; do
	layer=/run/layers$folder
	mkdir -p "$layer/upper" "$layer/work"
	mount -t overlay -o "lowerdir=$folder,upperdir=$layer/upper,workdir=$layer/work" overlay "$folder"
done
# On a disk, because kubelet asks for the file system of its folder, and keeps logs there.
mkdir -p "$site/kubelet" "$site/log" /var/lib/kubelet /var/lib/cni
mount --bind "$site/kubelet" /var/lib/kubelet
mount --bind "$site/log" /var/log
"$@" &
wait $!
