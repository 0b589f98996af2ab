// Package paths tests the properties of paths between sites: what daemons measure of them, and that
// links survive slow, narrow, policed, silent and inspected ones.
package paths
