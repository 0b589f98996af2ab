// Package gate is the node service: it lets submitters book the node, takes the
// files of their jobs, starts and watches over their processes, and cleans up behind
// them; and it is by which a program of the node reaches the node services of others.
// Package gatepb has what they say to each other.
//
// The decisions about reservations are those of package reserve, whose Node a NodeService
// drives; what jobs compute, how nodes are chosen and who asks whom first are
// somebody else's business.
//
//	isthmus run --unix socket--> Desk of its helper --link, TLS, gRPC--> NodeService of a node
//
// Node services reach each other over links as the processes of a job do, so by every
// technique and with no port of their own: each is rank 0 of its node's gate job, whose
// key everybody can derive (jobkey.Gate), and whoever wants to reach it dials it as
// another rank. Such a link proves nothing; a session with the certificates of both
// helpers stands on it (package control).
//
// State is in memory: the reservations belong to the goroutine of NodeService.Serve. What runs
// under one runs in a job agent, a process of its own (package jobagent), so a node service that
// ends or is killed leaves it running; the next one with the same folder takes it over. On
// the disk are the store of chunks, and of each reservation that has an agent a record and
// a socket; the agent keeps the job's folder.
package gate
