// Package upgrade tests that daemons are replaced, drained and upgraded under links
// and that these go on, and that two versions of the daemons work beside each other.
package upgrade
