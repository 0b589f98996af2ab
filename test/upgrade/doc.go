// Package upgrade tests that daemons are replaced, drained and upgraded under links, that the links
// survive, and that two versions of the daemons work together.
package upgrade
