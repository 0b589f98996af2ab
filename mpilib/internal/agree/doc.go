// Package agree is what MPI_Comm_agree and MPI_Comm_shrink of ULFM (MPI forum,
// User-Level Failure Mitigation) rest on: the members of a communicator agree
// on one [Value], whichever of them die while they do. A [Member] is one
// process's part. It knows no sockets, clocks or goroutines: it is told what
// happens and says what to send and what is decided. All state is in the
// Member and belongs to whoever calls it, one call at a time.
//
// # What is promised
//
//   - Every member that started and lives decides, once all that live have
//     started and all deaths have been told.
//   - No two members decide differently, not even where one dies at once after
//     it decided and before anybody could hear of it (uniform agreement).
//   - The value is the sum (see [Value]) of what a set of members contributed
//     that includes all that live when it is decided. A member that dies on the
//     way is in it or not, for everybody the same.
//
// # What is needed
//
// A message between two members that live arrives, once, in whatever order. The
// failure detector is perfect: it names every death to every survivor some time,
// and nobody who lives. Where it can only suspect, the suspected must be kept
// out for good, as ULFM demands; a Member that learns so returns [ErrExpelled].
//
// # How
//
// The leader is the lowest rank that is not known to have failed. It works in
// attempts along a tree that leaves the failed out, with four messages on each
// of its edges:
//
//	Contribute  up    the sum of the values of a subtree; all start with it unasked
//	Propose     down  the sum of all
//	Accept      up    all of the subtree have the proposal
//	Commit      down  all have it: decided
//
// So without failures an agreement of n members takes 4(n-1) messages on paths
// of 4⌈log2 n⌉. Half of that (a sum up, the decision down) cannot be uniform:
// the first to decide might die with all that heard of it. That every member
// has the value before one decides is the price, a known lower bound.
//
// Only the leader repairs. When it learns of a death it starts another attempt
// on a tree without the dead: Gather down, if there is no proposal yet, for
// contributions; else Propose, with the same value. When the leader dies, the
// next proposes what it has accepted, or gathers if it has accepted nothing. It
// need not ask what the others accepted: a value that anybody has decided has
// been accepted by all who lived then, so by every leader to come, and each
// proposes it again. Attempts are ordered by leader, then number; members turn
// to higher ones and ignore lower.
//
// Who has accepted and learns of a death cannot know whether a Commit was lost
// with the dead. It sends Ask to the leader, with the failures it knows. A
// leader that has decided answers with Tell. One that has not learns of the
// failures, and leads. Likewise a member that has decided answers a leader's
// Gather or Propose with Tell.
//
// # What is remembered
//
// A Member answers for its last decision only. To contribute to an agreement is
// to have decided the one before, and a decision takes a contribution of all
// that live; so when one is decided nobody needs an earlier one any more. The
// last decision of all is needed until every other member has decided it or
// failed, which a Member cannot see: its owner keeps it while the communicator
// exists, and past that until the others are known to have freed it too.
package agree
