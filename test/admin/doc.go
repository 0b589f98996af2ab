// Package admin tests what an administrator sees and types: installing and running a grid
// for a day, metrics, the status page, bundles for developers, and two versions of the
// daemons beside each other.
package admin
