// Package doctor determines why a node or a gateway cannot do its part in a grid: which layer fails
// (name, TCP, TLS, HTTP proxy, the grid's own handshake, datagrams), how it fails, and which device
// most likely refuses.
//
// It has two halves. Look opens sockets and records Observations, and judges nothing. Diagnose is a
// pure function of Observations: it interprets them, and keeps what was observed (Evidence) apart
// from what that means (Meaning), so that a guess is never presented as a fact. For causes that
// look alike it names all of them.
//
// A run is harmless: it does not replace a session at a frontal or broker, and sends a few packets
// only to addresses that the daemon's own settings or the grid itself name. It knows no settings
// file and no daemon; the caller translates. It keeps no state: all of it is in the Observations.
package doctor
