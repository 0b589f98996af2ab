// Package connhelper is the daemon on every node that connects the node's processes to those of
// other nodes. A process requests a connection to another process over a Unix socket; the helper
// asks its frontal for a plan, carries out the techniques, and hands the connected socket to the
// process. After that no helper is on the data path, and a helper that dies takes no connection
// with it.
//
// The package decides nothing about techniques (the broker does), knows nothing about what
// processes send each other, and never reads past the first frame of a connection. Its state is the
// table of the node's processes, kept in memory and rebuilt by their clients after a restart.
//
// # Rooms
//
// This package has the settings, the session with the frontal, the local socket, the processes, and
// how each technique is carried out. Each of the rooms below has its own state, and imports none of
// the others:
//
//   - race: when which technique of a plan is tried, and which connection is taken; who of many
//     links to one site follows whom
//   - packetsize: the sites on the way to which large packets vanish
//   - reserve: the relays that are kept for links in case their paths die
//   - traffic: what a process reports that its links have moved
//
// # Locks
//
// No lock is held while calling, dialling or waiting, with one exception: that of dataPort is held
// while the connections of a listener that is replaced end. These may take each of the others, and
// do not take that one.
//
// Where one lock is taken under another it is in this order, and there is no other pair:
//
//	process -> limit.Counter of internal/limit   the names that an account has published
//
// race.Cache, packetsize.Memory, reserve.Table and reportTimes each have one lock, take no other while
// they hold it, and are not called with a lock held. A traffic.Account has none: it belongs to the goroutine
// that reads its process's socket.
package connhelper
