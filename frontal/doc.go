// Package frontal is a site's gateway. It stands where the site's nodes and
// the outside both reach, keeps the site's one session with the broker, and
// accepts those of the site's helpers. It registers their processes, answers
// their questions from a cache and asks the broker once for what many want to
// know, passes signalling requests on, and, where nodes have no route out, carries
// their data.
//
// It decides nothing about techniques and reads no byte of a link behind its
// first frame. Everything it knows is in memory and comes from below or above:
// after a restart the helpers register again, and after the broker's restart it
// does. Links that it does not carry outlive it.
//
// # Rooms
//
// This package has the settings, the servers of the gRPC services, who may call
// what, and the order in which a call goes through the rooms below. Each of them
// has its own state and lock, and imports of the others only those above it here:
//
//   - lru: a map of bounded size
//   - uplink: the sessions with the brokers and the calls to them
//   - directory: the site's processes and helpers, the brokers' answers, who
//     waits for a process, the hosts; asks by uplink
//   - gateway: what carries data; asks directory and uplink
//   - measure, permit, outcomes, ledger: the site's profile, its policy, how
//     techniques did, what helpers tell of links; they import no other room
//
// # Locks
//
// No lock is held while calling, dialling or waiting. The Frontal itself has none.
// Where one lock is taken under another it is in this order, and there is no
// other pair:
//
//	directory.Resolver -> uplink.Set       is there a broker to ask
//	uplink.Set         -> control.Session  why it ended
//	gateway.Gateway    -> ratelimit.Limiter of internal/limit/ratelimit, the quota
//	gateway.Gateway    -> limit.Counter, limit.Places of internal/limit
//	directory.Registry -> limit.Counter
//
// Of the locks of package directory none is taken under another, and none while the
// gateway's is held: an answer that needs both is put together from two moments. The
// token of directory.Hosts is no lock in this sense: who has it asks the broker.
package frontal
