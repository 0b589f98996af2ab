// Package replica decides how the processes of a job act when each rank has several replicas,
// so that a program does not notice that some of them die. A [Process] is one process's part.
// Above it are ranks, which the program sees; below it are processes, which links connect. It
// knows no sockets, clocks, locks or goroutines: its owner, the engine, reports to it what the program
// does, what arrives and which processes have failed, and carries out the [Effect] values that result. All state
// is in the Process and belongs to its caller, one call at a time.
//
// # Guarantees
//
//   - Every live replica of a rank receives each message of another rank once, in the order in which
//     that rank sent the messages of a context, whichever processes die.
//   - Live replicas of a rank replay the same outcomes of whatever may differ between them.
//   - A rank fails only with the last of its replicas.
//   - Replicas that do not act alike are found out, see [Divergence].
//
// # Requirements
//
// What a process sends to another arrives in that order, or the link fails. Every
// failure is reported to every survivor at some time. A report may be wrong: the process is then
// treated as failed for good, and ends when it hears of it. Of two replicas of a rank, at most one
// is reported to the other: whoever reports failures decides which. The program, given the outcomes of its points,
// sends the same messages in each replica.
//
// # Messages
//
// A message is identified by (context, source rank, destination rank, tag, k): it is the k-th of its
// stream. Both ends count k, and nothing of it is sent. A count for each pair of ranks would
// not do: messages of a collective's schedule, of different tags, overtake each other, in each replica
// otherwise.
//
// Each replica of a destination gets its messages from one replica of the source, its server (see
// [Table]), and the others keep theirs. It acknowledges what was delivered, in batches, to
// all replicas of the source. A batch has one entry for each stream, saying how many more messages
// of it were delivered; so both ends need a stream's count only while something of it is not
// acknowledged. A replica that is behind hears of messages that it has not sent yet, and need not send
// those at all.
//
// When a server fails, the next one sends Query. The destination condemns the failed process, so that
// nothing more of it is accepted; acknowledges what was delivered; and answers Have. The new server
// then sends what is not acknowledged, in its own order. Of that, the destination may have received a part,
// behind a message that is not complete: it drops duplicates, and has the incomplete one continued.
//
// # Points
//
// A point is where replicas may differ: which message a receive from any source gets, what a test or
// a probe finds, what time it is. The lowest live replica, the leader, decides its outcome, the others replay
// it. The leader's decisions are a log. An outcome is committed once all live replicas have it. The leader
// goes on at once, but what it sends from then on waits until the outcome is committed; the others wait for that
// before they use it. So no process outside the rank can depend on an outcome that may be lost. A new
// leader keeps the log that it has, which contains all that was committed, and the others replace what
// they have beyond it.
//
// # Output
//
// What a program writes leaves the rank, too, and here nothing waits until an outcome is committed: the leader's program has
// written it before anybody could hold it back. So whoever prints waits until all live replicas have written the same,
// as package merge does. What a follower has written follows from committed outcomes.
//
// # Newcomers
//
// A process with a spare number takes the seat of a lost replica at a milestone of the program (see [Milestones]), in the next
// [Layout]. The seats of a layout agree (package agree) at which milestone, who comes, and who has loaded the state of its rank; all begin anew in
// the next layout, where nothing is under way. A death at any time leaves all with the same layout. docs/decisions/0056-returning-replicas.md
// has the rounds; rounds.go is a process with a seat, joining.go one without.
package replica
