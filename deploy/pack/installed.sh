#!/bin/sh
# After installing a daemon: its settings are for its group to read, and systemd knows its unit.
# Nothing is started. An upgrade leaves the daemon running; `systemctl restart` hands over.
set -e
for file in /etc/isthmus/broker.yaml /etc/isthmus/frontal.yaml /etc/isthmus/proxy.yaml /etc/isthmus/helper.yaml; do
	if [ -f "$file" ]; then
		chgrp isthmus "$file"
	fi
done
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
