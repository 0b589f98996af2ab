#!/bin/sh
# Before the daemon is removed, but not before it is upgraded, it ends. rpm says how many
# versions are left, dpkg what it does.
set -e
case "${1:-}" in
0 | remove)
	if [ -d /run/systemd/system ]; then
		if [ DAEMON = isthmus-helper ]; then
			systemctl --no-reload disable --now isthmus-starter.service || true
		fi
		systemctl --no-reload disable --now DAEMON.service || true # it may never have been enabled
	fi
	;;
esac
