// Package doctor finds out why a node or a gateway cannot do its part in a
// grid: which layer fails (name, TCP, TLS, HTTP proxy, the grid's own
// hand-shake, datagrams), how it fails, and which device most likely refuses.
//
// It has two halves. Look opens sockets and notes what it saw, as Observations,
// and judges nothing. Diagnose is a pure function of Observations: it says what
// they mean, and keeps what was seen (Evidence) apart from what that means
// (Meaning), so that a guess is never sold as a fact. What looks alike is told
// with all its causes.
//
// A run does no harm: it takes nobody's place at a frontal or broker, sends a
// few packets to the addresses that the daemon's own settings or the grid
// itself name, and to no other. It knows no settings file and no daemon; the
// caller translates. It keeps no state: all of it is in the Observations.
package doctor
