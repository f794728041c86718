#!/bin/sh
# After the files are there: the user, and a restart of a service that runs. DPKG_ROOT is set
# where the package is installed into another root, such as that of an image.
set -e
root=${DPKG_ROOT:-}
if command -v systemd-sysusers >/dev/null 2>&1; then
    systemd-sysusers ${root:+--root="$root"} edda.conf
elif [ -z "$root" ] && ! getent passwd edda >/dev/null; then
    useradd --system --user-group --home-dir /var/lib/edda --no-create-home --shell /usr/sbin/nologin edda
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # A stop in stages and a start: what was in flight continues.
    systemctl try-restart edda.service
fi
