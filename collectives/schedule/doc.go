// Package schedule is the form in which collective algorithms are written: for each rank a list of
// steps, as data. A step sends, receives, copies or reduces a region of the rank's memory once the
// earlier steps that it depends on are done. The same list is run over real messages (Run), by a
// simulator without messages (Simulate), and printed for people (Schedule.String).
//
// The package knows bytes, ranks and dependencies; it does not know sites, elements or the meaning
// of a collective. It keeps no state: a Schedule does not change once it is built, and can be run
// any number of times, also concurrently on other memory.
//
// # Dependencies
//
// An algorithm gives its steps to a Builder in an order in which they could be done one after the
// other. The Builder finds which of them touch the same bytes, and so must keep that order; all
// others may overtake each other. An algorithm therefore says nothing about what runs at the same
// time, cannot forget a dependency, and has its receives posted as soon as the memory that they
// fill is free.
//
// # Messages
//
// The n-th message that one rank sends to another is the n-th that the other receives from it, both
// counted in the order of the two lists. That number is the message's slot: it distinguishes
// messages of a pair that are in transit together and may arrive in any order.
package schedule
