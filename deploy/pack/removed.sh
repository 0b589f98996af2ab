#!/bin/sh
# After a daemon's unit has gone.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
