#!/bin/sh
# Slurm's PrologSlurmctld on the controller (slurm.conf: PrologSlurmctld=/etc/slurm/isthmus-prolog-slurmctld.sh),
# as SlurmUser: makes the token with which a job's own helpers enrol (isthmus node --token), for the
# job's nodes, user and time only, and leaves it where the prolog on each node takes it from. It
# never fails a job.
#
# The controller needs a certificate that may make such tokens for its own site, and nothing else:
#   isthmus ca issue --out certs scheduler sitea
# ISTHMUS_TOKENS is a folder that the nodes see, too, of mode 0700, SlurmUser's on a file system
# that lets root of the nodes read it. Change these where they are elsewhere.

site=${ISTHMUS_SITE:-sitea}
certs=${ISTHMUS_CERTS:-/etc/isthmus/scheduler}
tokens=${ISTHMUS_TOKENS:-/var/spool/isthmus-tokens}

say() { logger -t isthmus-prolog "job ${SLURM_JOB_ID:-?}: $1"; exit 0; }

case "${SLURM_JOB_ID:-x}" in *[!0-9]*) exit 0 ;; esac
umask 077
until=${SLURM_JOB_END_TIME:-}
if [ -z "$until" ]; then
	ends=$(scontrol show job -o "$SLURM_JOB_ID" | sed -n 's/.* EndTime=\([^ ]*\) .*/\1/p')
	until=$(date -d "$ends" +%s) || say "no token: scontrol does not say when it ends"
fi
timeout 15 isthmus ca token --scheduler "$certs/scheduler-$site.pem" --scheduler-key "$certs/scheduler-$site.key" --ca "$certs/ca.pem" \
	--allocation "$SLURM_JOB_ID" --nodes "$SLURM_JOB_NODELIST" --account "$SLURM_JOB_USER" --until "@$until" \
	helper "$site" >"$tokens/.$SLURM_JOB_ID" && mv "$tokens/.$SLURM_JOB_ID" "$tokens/$SLURM_JOB_ID" || say "no token: isthmus ca token failed"
find "$tokens" -type f -mtime +30 -delete # of jobs that are long over
exit 0
