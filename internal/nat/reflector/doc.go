// Package reflector is what a broker and a proxy do so that a site can learn how
// it looks from outside: they answer observe frames over TCP and STUN over UDP
// with the address that a question came from, and they call back, once and
// with a nonce, an address that asked for it: at once and from a port that is
// new to it, or after a while as the late answer to what it asked.
//
// It knows no sites and no jobs, and it decides nothing: whom a vantage point
// may call back is for the broker to say, from what Seen remembers, and how
// often from Rates. It never sends to anybody who did not ask. Its state is
// counters, those two tables and the answers that it owes; all are bounded and
// forget by themselves.
package reflector
