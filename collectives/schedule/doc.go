// Package schedule is what collective algorithms are written as: for each rank a
// list of steps, as data. A step sends, receives, copies or reduces a region of the
// rank's memory once the steps before it that it depends on are done. The same list
// is run over real messages (Run), by a simulator without any (Simulate), and
// printed for people (Schedule.String).
//
// It knows bytes, ranks and dependencies; it refuses to know sites, elements and
// what a collective means. It keeps no state: a Schedule does not change once it
// is built, and can be run any number of times, also at once on other memory.
//
// # Dependencies
//
// An algorithm tells a Builder its steps in an order in which they could be done one
// after the other. The Builder finds which of them touch the same bytes, and so must
// keep that order; all others may overtake each other. So an algorithm says nothing
// about what runs at the same time, cannot forget a dependency, and has its receives
// posted as soon as the memory that they fill is free.
//
// # Messages
//
// The n-th message that one rank sends to another is the n-th that this one receives
// from it, both counted in the order of the two lists. That number is the message's
// slot: it tells messages of a pair apart that are under way together and come in
// any order.
package schedule
