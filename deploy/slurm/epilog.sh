#!/bin/sh
# Slurm's Epilog on compute nodes (slurm.conf: Epilog=/etc/slurm/isthmus-epilog.sh), as root: removes
# the job's token, and what its own helper (isthmus node) left, if it was killed: the folder
# TMPDIR/isthmus-UID-JOBID. Where jobs have another TMPDIR than /tmp, set ISTHMUS_TMPDIR here.
# The node's own helper (isthmus-helper.service) stays: it serves the jobs that come.

case "${SLURM_JOB_ID:-}${SLURM_JOB_UID:-}" in
'' | *[!0-9]*) exit 0 ;; # not called by Slurm
esac
[ -n "$SLURM_JOB_ID" ] && [ -n "$SLURM_JOB_UID" ] || exit 0
dir=${ISTHMUS_TMPDIR:-/tmp}/isthmus-$SLURM_JOB_UID-$SLURM_JOB_ID

rm -rf -- "/run/isthmus-alloc-$SLURM_JOB_ID" # its token, which the prolog put there

# The job's user could have put something else there: only a folder of that user is
# removed, as that user, and nothing on another file system.
if [ -d "$dir" ] && [ ! -L "$dir" ] && [ "$(stat -c %u "$dir")" = "$SLURM_JOB_UID" ]; then
	timeout 30 setpriv --reuid "$SLURM_JOB_UID" --clear-groups rm -rf --one-file-system -- "$dir" ||
		logger -t isthmus-epilog "job $SLURM_JOB_ID: $dir stays"
fi
exit 0
