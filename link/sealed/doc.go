// Package sealed encrypts a carrier between two processes of a job: TLS 1.3 (RFC 8446), mutual, by
// the job's certificates, at the speed that large messages need.
//
// crypto/tls performs the handshake: every choice of cipher, every signature and the key schedule
// are its own. Then it hands over the two traffic secrets (through the key log, its only interface
// for them), and a record layer of this package takes over, since that of crypto/tls allocates for
// each record, writes records one by one, and copies what it opened. The bytes on the wire are TLS
// 1.3 as any implementation speaks it; the tests talk to crypto/tls itself in both roles.
//
//	Write  caller's buffers -> copied once, 16 KiB at a time, into records,
//	       sealed in place -> up to 16 records in one write
//	Read   one read of up to 257 KiB -> records opened straight into the
//	       caller's buffer; the last one, if it does not fit, by one copy
//
// Neither allocates. A record is never held back: when Write returns, all of it was given to the
// carrier. Only a TryWriteVec that found too little room leaves one, or part of one, for the next
// write (try.go).
//
// Within one end, sealing does not overlap with sending, nor receiving with opening; the two ends
// do overlap. Over loopback, on two processors, a stream of 1 MiB messages takes 830 us of
// processor time each, of both ends together, and 480 us of wall time. More goroutines could gain
// no more than the 15 % between that and one half, and would pay for it in wake-ups.
//
// Memory: a Conn keeps 17 KiB to read into, 257 KiB while its peer sends in bulk. A Write borrows
// 257 KiB (17 KiB for one record) until it returns.
//
// The package knows certificates and records. It does not know links, the meaning of ranks, how the
// carrier was made or what flows over it. A Conn starts no goroutine; all state is in it.
package sealed
