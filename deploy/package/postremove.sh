#!/bin/sh
# After the files are gone. The user and /var/lib/edda stay, also at a purge: the store may be
# the only copy of the sagas.
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
