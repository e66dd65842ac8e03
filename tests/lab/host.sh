#!/bin/sh
# Powers a host on: sets up its files in fresh namespaces and starts its sshd. This script is its process 1.
# Arguments: NAME FOLDER [overlay MOUNT_POINT | bind FOLDER]…
set -eu
name=$1 folder=$2
shift 2
own=$folder/$name
root=$own/root
home=~root
read -r pid _ < /proc/self/stat
hostname "$name"

# overlay_on LOWER NUMBER: shows the machine's files; writes go to the host's own disk.
overlay_on() {
    mkdir -p "$own/disk/$2/upper" "$own/disk/$2/work"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$own/disk/$2/upper,workdir=$own/disk/$2/work" "$root$1"
}
overlay_on / 0
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o size=1g,mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=755 run "$root/run"
# /tmp starts empty: a test must not find on a host what only the controller wrote.
mount --bind "$own/disk/tmp" "$root/tmp"
number=0
while [ $# -gt 0 ]; do
    mkdir -p "$root$2"
    case $1 in
    overlay) number=$((number + 1)); overlay_on "$2" "$number" ;;
    bind) mount --rbind "$2" "$root$2" ;;
    esac
    shift 2
done

# Hide the login files of the machine's user. They are covered, not removed, because the home may be a bound folder.
mkdir -p "$own/disk/home/.ssh"
chmod 700 "$own/disk/home/.ssh"
for file in .bash_profile .bash_login .bashrc .profile .ssh; do
    [ -e "$root$home/$file" ] || continue
    [ -e "$own/disk/home/$file" ] || : > "$own/disk/home/$file"
    mount --bind "$own/disk/home/$file" "$root$home/$file"
done

# The paths are those of the controller, so that one ssh_config works everywhere.
mkdir -p "$root$folder/keys"
cp "$folder/keys/client" "$folder/keys/known_hosts" "$root$folder/keys/"
cp "$folder/ssh_config" "$root/etc/ssh/ssh_config"
cp "$folder/hosts" "$root/etc/hosts"
echo "$name" > "$root/etc/hostname"
mkdir -p "$root/run/sshd" "$root/run/lab"
cp "$folder/keys/$name" "$root/run/lab/host_key"
cp "$folder/keys/client.pub" "$root/run/lab/authorized_keys"
cp "$folder/sshd_config" "$root/run/lab/sshd_config"
# Without PAM, sshd refuses a locked account, even with a key.
sed -i 's/^root:!/root:*/' "$root/etc/shadow"

mkdir "$root/run/machine"
cd "$root"
pivot_root . run/machine
cd /
umount --lazy /run/machine
rmdir /run/machine
ip link set lo up
echo "$pid"
exec >&2
/usr/sbin/sshd -D -e -f /run/lab/sshd_config &
# The shell reaps orphans while it waits. If sshd ends, the host stays on.
wait
exec sleep infinity
