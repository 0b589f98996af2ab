// Package attack tests what strangers, stolen certificates and hostile ranks can do to the
// daemons: they are refused, and what they may take is bounded. It measures memory,
// descriptors and goroutines of daemons, so it is best run with nothing beside it.
package attack
