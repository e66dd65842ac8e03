#!/bin/sh
# The lab's switch: a bridge, and the hosts' disks, which outlive a power-off. Process 1 of the lab's process tree:
# all of the lab dies with it, and it dies when its standard input closes.
# Arguments: FOLDER DISK_SIZE HOST…
set -eu
folder=$1 disk=$2
shift 2
# /proc is still the machine's, so this is our number as the machine counts.
read -r pid _ < /proc/self/stat
ip link add bridge type bridge forward_delay 0
ip link set bridge up
for name in "$@"; do
    mkdir -p "$folder/$name/disk" "$folder/$name/root"
    mount -t tmpfs -o "size=$disk,mode=755" "disk-$name" "$folder/$name/disk"
    mkdir "$folder/$name/disk/tmp"
    chmod 1777 "$folder/$name/disk/tmp"
done
exec 3<&0
echo "$pid"
exec >&2
# The shell reaps what is orphaned while it waits.
cat <&3 >/dev/null &
wait
