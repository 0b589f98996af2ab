// Package registry is what a broker knows of who is where: sites, their processes and
// the names that those publish (Registry), and proxies (Proxies). It asks nobody: what it
// knows was told it by sessions, and goes with them.
package registry
