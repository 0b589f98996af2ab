// Package reflector lets a broker or a proxy show a site how it looks from outside: it answers
// observe frames over TCP and STUN over UDP with the source address of the question, and it calls
// back, once and with a nonce, an address that asked for it: at once and from a port that is new to
// it, or later as a late answer.
//
// It knows no sites and no jobs, and it decides nothing: the broker decides whom a reflector
// may call back, from the addresses in Seen, and how often, by Rates. It never sends to a host that
// did not ask. Its state is counters, those two tables and the answers that it owes; all are
// bounded and expire by themselves.
package reflector
