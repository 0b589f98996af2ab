// Package registry is a broker's record of where processes are: sites, their processes and the
// names that those publish (Registry), and proxies (Proxies). It makes no calls: sessions enter
// what it holds, and it removes a session's entries when the session has ended.
package registry
