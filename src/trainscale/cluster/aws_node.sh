# Runs on a node at its first boot, as root, on Ubuntu: mounts the shared file system and makes ssh work between the
# nodes. ROLE, NODES, CLUSTER, LOGIN, FILE_SYSTEM and READY are set before this; the tests also set other variables.
#
# Every node creates its own key, and private keys do not leave their node. What others need to know of a node is in
# /shared/.trainscale/ROLE/ADDRESS. When all workers are there, the master writes the lists that all nodes read (nodes
# file, names, host keys, authorised keys), tries every worker by ssh, and reports to CloudFormation.

set -eEuo pipefail
SHARED=${SHARED:-/shared}
METADATA=${METADATA:-http://169.254.169.254}
COMMON=$SHARED/.trainscale
ADDRESS=?

report() { # status, reason
    local words
    words=$(printf %s "${2:0:500}" | tr -cd 'A-Za-z0-9 .,:;/_=()-')
    curl -fsS --retry 10 --retry-all-errors -X PUT -H 'Content-Type:' --data-binary \
        "{\"Status\": \"$1\", \"UniqueId\": \"$ROLE-$ADDRESS\", \"Data\": \"$ADDRESS\", \"Reason\": \"$words\"}" "$READY"
}

failed() { # line, command
    trap - ERR
    report FAILURE "$ROLE $ADDRESS: line $1 of its first boot failed: $2"
    exit 1
}
trap 'failed $LINENO "$BASH_COMMAND"' ERR

retry() { # seconds, command: repeats it until it succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || failed "${BASH_LINENO[0]}" "$*"
        sleep 2
    done
}

metadata() { # version 2 of the service, the only one that the instance allows
    local token
    token=$(curl -fsS --retry 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$METADATA/latest/api/token")
    curl -fsS --retry 5 -H "X-aws-ec2-metadata-token: $token" "$METADATA/latest/meta-data/$1"
}

install_packages() { # a new machine often runs its automatic updates first: wait for their lock
    apt-get -o DPkg::Lock::Timeout=600 -qq update || true # one of the image's package sources may be down
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -qq -y install nfs-common python3-venv
}

mount_shared() {
    mkdir -p "$SHARED"
    if ! grep -q "^$FILE_SYSTEM:/ " /etc/fstab; then
        local options=nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev
        echo "$FILE_SYSTEM:/ $SHARED nfs4 $options 0 0" >>/etc/fstab
    fi
    mountpoint -q "$SHARED" || retry 600 mount "$SHARED" # its name may be unknown for some minutes
    chown "$LOGIN:" "$SHARED"
    chmod 755 "$SHARED"
    mkdir -p "$COMMON/master" "$COMMON/worker"
}

open_ssh() { # sshd accepts the cluster's keys, ssh knows the cluster's hosts; the master writes both lists
    local home
    home=$(getent passwd "$LOGIN" | cut -d: -f6)
    [ -e "$home/.ssh/id_ed25519" ] ||
        runuser -u "$LOGIN" -- ssh-keygen -q -t ed25519 -N '' -C "$CLUSTER" -f "$home/.ssh/id_ed25519"
    [ -e /etc/ssh/ssh_host_ed25519_key.pub ] || ssh-keygen -A
    echo "AuthorizedKeysFile .ssh/authorized_keys $COMMON/authorized_keys" >/etc/ssh/sshd_config.d/60-trainscale.conf
    echo "GlobalKnownHostsFile /etc/ssh/ssh_known_hosts $COMMON/known_hosts" >/etc/ssh/ssh_config.d/60-trainscale.conf
    systemctl try-reload-or-restart ssh
    # One file, moved into its place, so that nobody reads half of it.
    { cat "$home/.ssh/id_ed25519.pub" && cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub; } >"$COMMON/$ADDRESS.new"
    mv "$COMMON/$ADDRESS.new" "$COMMON/$ROLE/$ADDRESS"
}

write_atomically() { # file: writes standard input to it atomically
    cat >"$1.new"
    chmod 644 "$1.new"
    mv "$1.new" "$1"
}

all_there() { [ "$(find "$COMMON/worker" -type f 2>/dev/null | wc -l)" -ge "$NODES" ]; }

list_nodes() { # prints address and name of every node; workers are numbered in the order of their addresses
    echo "$ADDRESS $CLUSTER-master"
    find "$COMMON/worker" -type f -printf '%f\n' | sort -V | awk -v name="$CLUSTER-worker" '{print $1, name NR}'
}

write_lists() {
    cat "$COMMON"/master/* "$COMMON"/worker/* | grep " $CLUSTER\$" | write_atomically "$COMMON/authorized_keys"
    list_nodes | while read -r address name; do
        echo "$address,$name $(tail -n 1 "$COMMON"/*/"$address")"
    done | write_atomically "$COMMON/known_hosts"
    list_nodes | grep -v -- "-master\$" | write_atomically "$SHARED/nodes"
    list_nodes | write_atomically "$COMMON/names"
}

add_names() {
    grep -v " $CLUSTER-\(master\|worker[0-9]*\)\$" /etc/hosts >/etc/hosts.new
    cat "$COMMON/names" >>/etc/hosts.new
    cat /etc/hosts.new >/etc/hosts # writes into the file instead of replacing it: it may be a mount
    rm /etc/hosts.new
}

reached() { runuser -u "$LOGIN" -- ssh -n -o BatchMode=yes -o ConnectTimeout=5 "$1" true; }

ADDRESS=$(metadata local-ipv4)
retry 900 install_packages
mount_shared
open_ssh
if [ "$ROLE" = master ]; then
    retry 1500 all_there
    write_lists
    add_names
    while read -r _ name; do
        retry 120 reached "$name"
    done <"$SHARED/nodes"
    report SUCCESS "$NODES workers reached"
else
    retry 1500 test -s "$COMMON/names"
    add_names
fi
