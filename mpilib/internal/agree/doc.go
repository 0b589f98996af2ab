// Package agree implements the agreement behind MPI_Comm_agree and MPI_Comm_shrink of ULFM (MPI
// forum, User-Level Failure Mitigation): the members of a communicator agree on one [Value],
// whichever of them die meanwhile. A [Member] is one process's part. It knows no sockets, clocks or
// goroutines: its owner reports events, and it returns what to send and what is decided. All state
// is in the Member and belongs to its caller, one call at a time.
//
// # Guarantees
//
//   - Every live member that started decides, once all live members have
//     started and all deaths have been reported.
//   - No two members decide differently, even if one dies at once after
//     it decided and before another could learn of it (uniform agreement).
//   - The value is the sum (see [Value]) of the contributions of a set of members
//     that includes all that are live when it is decided. A member that dies
//     meanwhile is in it or not, for all members alike.
//
// # Requirements
//
// A message between two live members arrives, once, in any order. The failure detector is perfect:
// it eventually reports every death to every survivor, and reports no live member. Where it can
// only suspect, the suspected member must be kept out for good, as ULFM requires; a Member that
// learns that it was suspected returns [ErrExpelled].
//
// # Algorithm
//
// The leader is the lowest rank that is not known to have failed. It works in attempts along a tree
// without the failed members, with four messages on each of its edges:
//
//	Contribute  up    the sum of the values of a subtree; all start with it unasked
//	Propose     down  the sum of all
//	Accept      up    all of the subtree have the proposal
//	Commit      down  all have it: decided
//
// So without failures an agreement of n members takes 4(n-1) messages on paths of 4⌈log2 n⌉. Half
// of that (a sum up, the decision down) cannot be uniform: the first member to decide might die
// together with all that learned of it. Every member must have the value before one decides; this
// cost is a known lower bound.
//
// Only the leader repairs. When it learns of a death it starts another attempt on a tree without
// the dead: Gather down, if there is no proposal yet, for contributions; else Propose, with the
// same value. When the leader dies, the next one proposes what it has accepted, or gathers if it
// has accepted nothing. It need not ask what the others accepted: a decided value has been accepted
// by all members that were live then, so by every later leader, and each proposes it again.
// Attempts are ordered by leader, then number; members switch to higher ones and ignore lower ones.
//
// A member that has accepted and learns of a death cannot know whether a Commit was lost with the
// dead. It sends Ask to the leader, with the failures it knows. A leader that has decided answers
// with Answer. One that has not learns of the failures, and leads. Likewise a member that has decided
// answers a leader's Gather or Propose with Answer.
//
// # State kept
//
// A Member answers only for its last decision. A member contributes to an agreement only after it
// has decided the one before, and a decision takes a contribution of every live member; so when an
// agreement is decided no member needs an earlier one any more. The very last decision is needed
// until every other member has decided it or failed, which a Member cannot see: its owner keeps it
// while the communicator exists, and after that until the others are known to have freed it too.
package agree
