// Package broker knows who is where, what can reach what, and which technique
// connects which pair of sites, and says why. Frontals tell it their sites'
// profiles and processes, proxies offer themselves as relays; it answers
// questions, introduces the two ends of a link to each other, and issues the
// tickets by which a proxy lets them meet.
//
// It carries no byte of a link, opens no connection of its own accord and
// never learns a job's secret. All state is in memory, in package registry, and
// comes from below: after a restart frontals and proxies tell it again, and
// links that exist notice nothing.
package broker
