#!/bin/sh
# The lab's switch: a bridge, and the hosts' disks, which survive a power-off. It is process 1 of the lab's process tree,
# so the whole lab ends with it, and it ends when its standard input closes.
# Arguments: FOLDER HOST…
set -eu
folder=$1
shift
# /proc is still the machine's, so this is the process id as the machine counts.
read -r pid _ < /proc/self/stat
ip link add bridge type bridge forward_delay 0
ip link set bridge up
for name in "$@"; do
    mkdir -p "$folder/$name/disk" "$folder/$name/root"
    mount -t tmpfs -o "size=2g,mode=755" "disk-$name" "$folder/$name/disk"
    mkdir "$folder/$name/disk/tmp"
    chmod 1777 "$folder/$name/disk/tmp"
done
exec 3<&0
echo "$pid"
exec >&2
# The shell reaps orphans while it waits.
cat <&3 >/dev/null &
wait
