#!/bin/sh
# Before the files go. An upgrade (upgrade, 1) leaves the service to the new package.
set -e
case "${1:-}" in
upgrade | 1) exit 0 ;;
esac
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
    systemctl disable --now edda.service
fi
