// Package gossip finds out which hosts of a job have died. Each host runs one
// [Detector]. Every period it increments its heartbeat and sends all it knows of
// all hosts to one other; who has not been heard of for too long, by any way, is
// asked directly, and declared failed if it does not answer (van Renesse, Minsky
// and Hayden, "A gossip-style failure detection service", 1998; as in P2P-MPI).
//
// Whom to send to is not left to chance. Hosts stand on a ring, by name, and in
// its period number r a host sends to the one 2^s further, s = r mod L, where L
// is the logarithm of the number of hosts: so what one knows, all know after L
// periods (binary round robin; Ranganathan et al., 2001). [Double] goes on with
// L steps backwards, which reaches all the same when hosts on the way are dead.
//
// What is decided otherwise than in those papers:
//
//   - A heartbeat is not compared with one's own, which assumes that all hosts have
//     one period. It travels with its age, to which each host adds the time that it
//     kept it, by its own clock. So the age counts from the heart, not from here,
//     and differs from the truth by no more than the time on the wire.
//   - The ring is that of the living, and its steps are taken together: a period's
//     number is one more than the last or the highest seen, whichever is more. Hosts
//     that start at odd times would else send in different orders, and L periods
//     would not suffice.
//   - Time in which this host itself stood still (stopped, swapped out) does not
//     count against others.
//   - A host has an incarnation, higher at each start. A new one tells at once that
//     what ran in the old one is gone.
//   - An entry that is too old is never new, so the dead need not be remembered to
//     keep stale gossip from raising them.
//
// From the death of a host until all survivors are told it takes Config.Bound: the
// periods that news may take, twice or three times over, and the longest that a
// host or a path may hang without being dead.
//
// The package is pure: time and messages go in, messages and verdicts come out.
// It knows no sockets. Whoever carries messages vouches for their senders.
package gossip
