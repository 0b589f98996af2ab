// Package gate is a node's gate-keeper: it lets submitters book the node, takes the
// files of their jobs, starts and watches over their processes, and cleans up behind
// them; and it is by which a program of the node reaches the gate-keepers of others.
// Package gatepb has what they say to each other.
//
// The decisions about reservations are those of package reserve, whose Node a Keeper
// drives; what jobs compute, how nodes are chosen and who asks whom first are
// somebody else's business.
//
//	isthmus run --unix socket--> Desk of its helper --link, TLS, gRPC--> Keeper of a node
//
// Gate-keepers reach each other over links as the processes of a job do, so by every
// technique and with no port of their own: each is rank 0 of its node's gate job, whose
// key everybody can derive (jobkey.Gate), and whoever wants to reach it dials it as
// another rank. Such a link proves nothing; a session with the certificates of both
// helpers stands on it (package control).
//
// State is in memory: the reservations belong to the goroutine of Keeper.Serve, and
// what runs under one to its booking. On the disk are the store of chunks, and a folder
// for each reservation that has files, which goes with it. A keeper that starts finds
// and removes the folders of one that was killed; the processes of that one ended with
// it, by the kernel's or the undertaker's hand.
package gate
