// Package gossip detects which hosts of a job have died. Each host runs one [Detector]. Every
// period it increments its heartbeat and sends its entries about all hosts to one other host; it
// pings a host directly when no news of it has arrived for too long, by any path, and declares it
// failed if it does not answer (van Renesse, Minsky and Hayden, "A gossip-style failure detection
// service", 1998; as in P2P-MPI).
//
// Targets are not random. Hosts form a ring, sorted by name, and in its period number r a host
// sends to the one 2^s further, s = r mod L, where L is the logarithm of the number of hosts: so
// news reaches all hosts after L periods (binary round robin; Ranganathan et al., 2001). [Double]
// continues with L steps backwards, which reaches all hosts even when some on the way are dead.
//
// The differences from those papers:
//
//   - A heartbeat is not compared with the host's own, which would assume that all hosts have the
//     same period. It travels with its age, to which each host adds the time that it kept it, by
//     its own clock. So the age counts from the sending of the heartbeat, not from its arrival, and
//     its error is at most the time on the wire.
//   - The ring consists of the living hosts, and they step together: a period's number is one more
//     than the last or the highest seen, whichever is more. Otherwise hosts that start at different
//     times would send in different orders, and L periods would not suffice.
//   - Time in which this host itself was suspended (stopped, swapped out) does not count against
//     others.
//   - A host has an incarnation, higher at each start. A new one shows at once that the processes
//     of the old one are gone.
//   - An entry that is too old is never new, so dead hosts need not be remembered to prevent stale
//     gossip from reviving them.
//
// From the death of a host until all survivors know of it it takes Config.Bound: the periods that
// news may take, twice or three times over, and the longest time that a host or a path may be
// silent without counting as dead. Of a host that was never heard of that is not known, and it has Config.Start more: all
// hosts of a job start at once, and load each other and the paths with that.
//
// The package is pure: time and messages go in, messages and verdicts come out. It knows no
// sockets. The transport must authenticate the senders of messages.
package gossip
