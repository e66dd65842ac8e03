#!/bin/sh
# Sets up the controller: it has the machine's files and programs, but its own name and network.
# Arguments: NAME FOLDER
set -eu
name=$1 folder=$2
read -r pid _ < /proc/self/stat
hostname "$name"
mount --bind "$folder/hosts" /etc/hosts
mount --bind "$folder/ssh_config" /etc/ssh/ssh_config
# Hide the user's own keys and configuration.
home=~root
if [ -d "$home/.ssh" ]; then
    mkdir -m 700 "$folder/user_ssh"
    mount --bind "$folder/user_ssh" "$home/.ssh"
fi
# /sys/class/net shows the network of the process that mounted it.
mkdir -p "$folder/cgroup"
mount --rbind /sys/fs/cgroup "$folder/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$folder/cgroup" /sys/fs/cgroup
ip link set lo up
echo "$pid"
exec >&2
exec sleep infinity
