// Package starter is the daemon that starts job agents in accounts of their own: the only
// part of a node's software that may change its user, and all that it does with that. A
// job runs as the local account to which the admin maps its submitter, or as a number
// from a range that nobody else has; never as root, nor as the account that can read the
// daemons' keys.
//
//	helper --Unix socket, one question a connection--> starter --fork, setuid--> job agent
//
// It does not know what jobs do: it hands the agent the socket on which the helper will
// speak with it (package jobagent), and what is done to a job afterwards, a process of the
// job's account does. Whom it serves is one account, the helper's, as the kernel says.
//
// What lives is in memory and, for a starter that is started anew, in a file of its state
// folder. All of it belongs to the Server.
package starter
