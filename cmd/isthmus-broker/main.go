// Isthmus-broker knows who is where in a grid, and decides how two sites
// connect. Package broker does the work; the settings say where it listens.
package main

import (
	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/internal/daemon"
)

func main() { daemon.Main(broker.Spec()) }
