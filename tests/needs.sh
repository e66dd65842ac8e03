#!/bin/sh
# Installs what the tests need besides Python packages, if this is root on Debian. Elsewhere the tests that need a missing
# program are skipped with the reason.
set -eu
PATH="$PATH:/usr/sbin:/sbin"

# axe-core checks pages for accessibility. Without npm, or without a registry that it can reach, that test is skipped.
npm_folder=$(dirname "$0")/.npm
if command -v npm >/dev/null 2>&1 && ! [ -e "$npm_folder/node_modules/axe-core/axe.min.js" ]; then
    npm install --silent --no-audit --no-fund --no-save --prefix "$npm_folder" axe-core@4 >/dev/null 2>&1 ||
        echo "tests/needs.sh: npm could not install axe-core, so the test that needs it will be skipped"
fi

# PROGRAM_OR_FILE:DEBIAN_PACKAGE
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
zsh:zsh
fish:fish
pdflatex:texlive-latex-base
/usr/share/texlive/texmf-dist/tex/latex/booktabs/booktabs.sty:texlive-latex-recommended
/usr/share/texlive/texmf-dist/tex/latex/siunitx/siunitx.sty:texlive-science
"
missing= packages=
for line in $wanted; do
    name=${line%%:*}
    if ! command -v "$name" >/dev/null 2>&1 && ! [ -e "$name" ]; then
        missing="$missing $name"
        packages="$packages ${line#*:}"
    fi
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "tests/needs.sh: missing:$missing; this is not root on Debian, so the tests that need them will be skipped"
    exit 0
fi
# The tests start sshd and Slurm themselves, in namespaces. The packages must not start them on this machine.
policy=/usr/sbin/policy-rc.d
if ! [ -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
fi
apt-get update -qq
# shellcheck disable=SC2086  # one word per package
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
