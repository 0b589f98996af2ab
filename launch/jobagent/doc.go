// Package jobagent runs the processes of one job on one node, apart from the daemon
// that takes jobs: a job agent is a process of its own, with the job's account, and a
// helper that ends, is killed or upgraded leaves it and its job running.
//
//	helper --Unix socket, one connection at a time--> agent --pipes--> processes of the job
//	                                                  guard, the agent's parent
//
// The agent makes the job's folder and fills it, starts the processes, holds their
// pipes, keeps what they wrote until the submitter has acknowledged it, passes signals
// and input on, reads output files, and ends and removes everything when it is told to,
// or when no helper has been connected for some time. Its guard does nothing but wait:
// when the agent is killed, the guard ends what that leaves behind, processes that left
// their group and session included (the kernel hands them to it), and removes the folder.
//
// It knows neither reservations nor who may run what, and no network. A helper does not
// believe an agent more than the job's processes, which share its account: what must be
// trusted about a job, the helper keeps itself.
//
// All state is in the two processes; the messages are those of package gatepb.
package jobagent
