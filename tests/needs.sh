#!/bin/sh
# What the tests need besides Python packages. Installed where that is possible (root on Debian); elsewhere the tests that
# need it are skipped, and say so.
set -eu
command -v chromium >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
else
    echo "tests/needs.sh: no chromium here, and not root on Debian: the browser tests will be skipped"
fi
