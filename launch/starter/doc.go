// Package starter is the daemon that starts job agents in accounts of their own. It is the only
// part of a node's software with the privilege to change its user, and does nothing else with it. A
// job runs in the local account to which the admin maps its submitter, or in one from a range that
// nothing else uses; never as root, nor in the account that can read the daemons' keys.
//
//	helper --Unix socket, one request per connection--> starter --fork, setuid--> job agent
//
// It does not know what jobs do: it passes the agent the socket on which the helper will talk to it
// (package jobagent), and a process in the job's account does what must be done to a job later. It
// serves only the helper's account, as authenticated by the kernel.
//
// The set of running agents is in memory and, for the next starter, in a file of the state folder.
// All of it belongs to the Server.
package starter
