// Package nodeservice is the node service: it lets submitters book the node, receives the files of
// their jobs, starts and monitors their processes, and cleans up after them. Programs of the node
// also reach the node services of other nodes through it. Package nodepb has the messages.
//
// Package reserve decides about reservations; a NodeService drives its Node. What jobs compute, how
// nodes are chosen and in which order they are asked is outside this package.
//
//	isthmus run --unix socket--> Submitters of its helper --link, TLS, gRPC--> NodeService of a node
//
// Node services reach each other over links as the processes of a job do, so by every technique and
// without a port of their own: each is rank 0 of its node's service job, whose key anyone can
// derive (jobkey.ServiceKey), and a peer dials it as another rank of that job. Such a link
// authenticates nothing; a session with the certificates of both helpers runs over it (package
// control).
//
// State is in memory: the reservations, what became of each, and the watches of jobs belong to the goroutine of
// NodeService.Serve, which waits for nobody. A job agent is started, dialled and heard by a goroutine of its own, and
// written to by those of streams. The processes
// of a reservation run under a job agent, a process of its own (package jobagent), so they survive
// the end of a node service; the next one with the same folder takes them over. On disk are the
// store of chunks, and for each reservation with an agent a record and a socket; the agent keeps
// the job's folder.
package nodeservice
