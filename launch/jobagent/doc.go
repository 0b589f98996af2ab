// Package jobagent runs the processes of one job on one node, apart from the daemon that accepts
// jobs: a job agent is a process of its own, in the job's account, so that it and its job keep
// running when the helper ends, is killed or is upgraded.
//
//	helper --Unix socket, one connection at a time--> agent --pipes--> processes of the job
//	                                                  guard, the agent's parent
//
// The agent creates and fills the job's folder, starts the processes, holds their pipes, keeps
// their output until the submitter has acknowledged it, passes signals and input on, reads output
// files, and ends and removes everything when the helper orders it, or when no helper has been
// connected for some time. Its guard only waits: when the agent is killed, the guard kills what remains,
// including processes that left their group and session (the kernel reparents them to the guard),
// and removes the folder.
//
// It knows nothing of reservations, permissions or the network. A helper trusts an agent no more
// than the job's processes, which share its account: the helper itself keeps what must be trusted
// about a job.
//
// All state is in the two processes; the messages are those of package nodepb.
package jobagent
