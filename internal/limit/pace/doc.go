// Package pace holds the links of a daemon to the limits that package quota
// decides on: it admits links, has those wait whose turn has not come, counts
// what they move in a month and stores that.
//
// Who must wait is not read from, so the sender notices by his own full
// buffers; nobody is disconnected. It knows no socket: a Link is what package
// carrier calls a Pacer.
//
// All state belongs to a Keeper and is guarded by its mutex, but for the file
// of the month's counts, which is this process's alone.
package pace
