// Package local connects a process to the others of its job by means of its own machine: through
// the Unix socket of the node's helper (Client), or, where no daemon runs, through sockets in a
// directory (Directory). Both are an overlay.Connector. Conn is the framing that Client and the
// helper share.
//
// It knows frames, descriptors and how to reach the helper again; it does not know techniques,
// links and messages, and never reads from a socket that it was passed. All state is in memory; a
// Directory also owns one socket file.
package local
