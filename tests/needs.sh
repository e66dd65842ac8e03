#!/bin/sh
# What the tests need besides Python packages. Installed where that is possible (root on Debian); elsewhere the tests that
# need it are skipped, and say so.
set -eu
PATH="$PATH:/usr/sbin:/sbin"

# What must be there : the Debian package that brings it.
wanted="
chromium:chromium
cc:gcc
curl:curl
/usr/include/stdio.h:libc6-dev
unshare:util-linux
mount:mount
ps:procps
ip:iproute2
nft:nftables
ping:iputils-ping
ssh:openssh-client
sshd:openssh-server
munged:munge
slurmctld:slurmctld
slurmd:slurmd
srun:slurm-client
sinfo:slurm-wlm
mpirun.openmpi:openmpi-bin
mpiexec.hydra:mpich
"
missing= packages=
for line in $wanted; do
    what=${line%%:*}
    if ! command -v "$what" >/dev/null 2>&1 && ! [ -e "$what" ]; then
        missing="$missing $what"
        packages="$packages ${line#*:}"
    fi
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "tests/needs.sh: not here:$missing, and not root on Debian: the tests that need them will be skipped"
    exit 0
fi
# The tests start sshd and Slurm by themselves, in namespaces of their own: none shall start on this machine.
policy=/usr/sbin/policy-rc.d
if ! [ -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
fi
apt-get update -qq
# shellcheck disable=SC2086  # one word per package
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
