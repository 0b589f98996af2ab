// Isthmus-broker knows the sites and processes of a grid, and decides how two sites connect.
// Package broker does the work; the settings determine where it listens.
package main

import (
	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/internal/daemon"
)

func main() { daemon.Main(broker.Spec()) }
