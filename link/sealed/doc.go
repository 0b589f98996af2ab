// Package sealed encrypts a carrier between two processes of a job: TLS 1.3
// (RFC 8446), mutual, by the job's certificates, at the speed that large
// messages need.
//
// crypto/tls shakes hands: every choice of cipher, every signature and the key
// schedule are its own. Then it hands over the two traffic secrets (through
// the key log, the one door it has for them), and a record layer of this
// package takes their place, since that of crypto/tls allocates for each
// record, writes records one by one, and copies what it opened. What is on the
// wire is TLS 1.3 as any implementation speaks it; the tests talk to crypto/tls
// itself in both roles.
//
//	Write  caller's buffers -> copied once, 16 KiB at a time, into records,
//	       sealed in place -> up to 4 records in one write
//	Read   one read of up to 256 KiB -> records opened straight into the
//	       caller's buffer; the last one, if it does not fit, by one copy
//
// Neither allocates. A record is never held back: when Write returns, all of
// it was given to the carrier.
//
// Sending does not overlap with sealing within one end: over loopback it gains
// nothing, as the other end needs the second CPU, and a single CPU seals
// faster than sites are connected.
//
// Memory: a Conn keeps 17 KiB to read into, 256 KiB while its peer sends much at
// a time. A Write borrows 65 KiB (17 KiB for one record) until it returns.
//
// The package knows certificates and records. It refuses to know links, ranks'
// meaning, how the carrier came to be and what flows over it. A Conn starts no
// goroutine; all state is in it.
package sealed
