// Package attack tests what strangers, stolen certificates and hostile ranks can do to the daemons:
// they are refused, and the resources they can use are bounded. It measures memory, descriptors and
// goroutines of daemons, so it is best run alone.
package attack
