// Package submit brings a job onto the hosts of a grid and watches over it until it has
// ended: it is what "isthmus run" does over many hosts.
//
// It lists hosts, orders them by latency, books some of them (package reserve), stages
// the files, starts the processes, and then passes input, output, signals and exit
// statuses between them and its caller. Everything it says to a node, it says in one
// conversation with that node's service (package gatepb), by way of the own node's
// helper. A conversation that breaks is taken up again; if that does not succeed, the
// node's processes count as lost.
//
// It knows no sites, links or relays: that a node can be reached is the helper's
// business. All state is in memory and ends with Run. Should this process die, nodes end
// what was not yet started with its lease, and what runs after half a minute.
package submit
