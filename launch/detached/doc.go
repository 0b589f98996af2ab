// Package detached keeps what is left of a job when its submitter has gone: a folder for each
// detached job, with its state, its output, and a lock that its driver holds while it lives.
//
// The driver is the process that submits the job and monitors it (Begin); others find jobs, follow
// their output and signal the driver (Find, List). Nothing listens for them: files and the lock are
// all that the two sides share, so that any number may look on, and after the driver's end too. It
// knows neither how a job is started nor where its processes run.
//
// A folder JOB below Root, of mode 0700, has
//
//	state.json     State; replaced as a whole
//	driver         locked by the driver; what the driver's runtime wrote when it crashed
//	stdout.OFFSET  pieces of the standard output of all processes, from this byte of it on
//	stderr.OFFSET  the same of standard error, and of what isthmus run says of the job
package detached
