#!/bin/sh
# After installing: the daemons' user. Settings and keys in /etc/isthmus are for its group to read.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers isthmus.conf
elif ! getent group isthmus >/dev/null; then
	groupadd --system isthmus
	useradd --system --gid isthmus --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin isthmus
fi
