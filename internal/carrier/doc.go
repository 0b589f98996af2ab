// Package carrier holds the socket code that proxy, frontal and helper share: dialling, directly or
// through an HTTP CONNECT proxy; listening inside a port range; tuning a socket; and joining two
// connections so that the kernel copies between them.
//
// It makes *net.TCPConn and nothing that wraps one, because only a plain socket can be spliced or
// handed to another process; it joins any Stream. It knows no frame, no ticket and no job, and
// decides nothing about who may connect to whom. Its only state is a small pool of idle pipes that
// joins share, the last addresses of the names that were dialled, and the uplink that last helped.
package carrier
