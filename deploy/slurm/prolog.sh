#!/bin/sh
# Slurm's Prolog on compute nodes (slurm.conf: Prolog=/etc/slurm/isthmus-prolog.sh): sees to it that
# the node's helper runs before a job does. It never fails a job, and never takes the node away
# from Slurm: without a helper the job learns that from its own programs.
#
# Not needed where the helper's unit is enabled, or where jobs bring their helpers along (isthmus node).

command -v systemctl >/dev/null || exit 0
if ! systemctl is-active --quiet isthmus-helper; then
	timeout 15 systemctl start isthmus-helper ||
		logger -t isthmus-prolog "job ${SLURM_JOB_ID:-?}: isthmus-helper does not start; see journalctl -u isthmus-helper"
fi
exit 0
