// Package submit starts a job on hosts of a grid and monitors it until it has ended: it is what
// "isthmus run" does over many hosts.
//
// It lists hosts, orders them by latency, books some of them (package reserve), stages the files,
// starts the processes, and then passes input, output, signals and exit statuses between them and
// its caller. All messages to a node go through one conversation with that node's service (package
// nodepb), by way of the local node's helper. It resumes a conversation that breaks; if that fails,
// the node's processes count as lost.
//
// It knows no sites, links or relays: reaching a node is the helper's task. All state is in memory
// and ends with Run. If this process dies, nodes end what was not yet started when its lease
// expires, and running processes after half a minute.
package submit
