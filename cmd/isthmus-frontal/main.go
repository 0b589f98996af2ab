// Command isthmus-frontal is the daemon of a site's gateway; see package frontal.
package main

import (
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/daemon"
)

func main() { daemon.Main(frontal.Spec()) }
