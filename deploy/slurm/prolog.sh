#!/bin/sh
# Slurm's Prolog on compute nodes (slurm.conf: Prolog=/etc/slurm/isthmus-prolog.sh), as root. It never
# fails a job, and never takes the node away from Slurm: without a helper the job learns that from
# its own programs.
#
# Where prolog-slurmctld.sh made a token for the job's own helpers (isthmus node), it puts that where
# the job's user alone can read it, /run/isthmus-alloc-JOBID/token, and ends. Else it sees to it that
# the node's helper runs before the job does; where the helper's unit is enabled that is not needed.

token=${ISTHMUS_TOKENS:-/var/spool/isthmus-tokens}/${SLURM_JOB_ID:-none}
case "${SLURM_JOB_ID:-x}${SLURM_JOB_UID:-x}" in
*[!0-9]*) ;; # not called by Slurm
*)
	if [ -r "$token" ]; then
		dir=/run/isthmus-alloc-$SLURM_JOB_ID
		umask 077
		# The folder is root's until the file in it is the user's.
		mkdir "$dir" && cat "$token" >"$dir/token" &&
			chown "$SLURM_JOB_UID" "$dir/token" && chmod 0400 "$dir/token" && chmod 0711 "$dir" ||
			logger -t isthmus-prolog "job $SLURM_JOB_ID: its token could not be put into $dir"
		exit 0
	fi
	;;
esac

command -v systemctl >/dev/null || exit 0
if ! systemctl is-active --quiet isthmus-helper; then
	timeout 15 systemctl start isthmus-helper ||
		logger -t isthmus-prolog "job ${SLURM_JOB_ID:-?}: isthmus-helper does not start; see journalctl -u isthmus-helper"
fi
exit 0
