// Package broker is the daemon that knows where processes are, what can reach what, and which
// techniques connect which pair of sites, with the reasons. Frontals register their sites' profiles
// and processes, proxies offer themselves as relays. The broker answers queries, signals the two
// ends of a link to each other, and issues the tickets by which a proxy connects them.
//
// It carries no link data, never initiates a connection on its own and never learns a job's secret.
// All state is in memory, in package registry, and is built from what peers register: after a
// restart frontals and proxies register again, and existing links are not affected.
package broker
