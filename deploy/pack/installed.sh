#!/bin/sh
# After installing a daemon: its settings are for its group to read, its state folder is its
# own, so that it can be enrolled before it first runs, and systemd knows its unit. Nothing is
# started. An upgrade leaves the daemon running.
set -e
for daemon in broker frontal proxy helper; do
	if [ -f "/etc/isthmus/$daemon.yaml" ]; then
		chgrp isthmus "/etc/isthmus/$daemon.yaml"
		install -d -m 0755 /var/lib/isthmus
		install -d -o isthmus -g isthmus -m 0700 "/var/lib/isthmus/$daemon"
	fi
done
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
