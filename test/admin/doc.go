// Package admin tests what an administrator sees and types: installing and running a grid for a
// day, metrics, the status page, bundles for developers, and that the demo and the lab need no
// privileges.
package admin
