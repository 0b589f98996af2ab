// Isthmus-broker knows the sites and processes of a grid, and decides how two sites connect.
// Package broker does the work; the settings determine where it listens.
package main

import (
	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	_ "github.com/isthmus-grid/isthmus/internal/store/etcd" // brokers may share one
)

func main() { daemon.Main(broker.Spec()) }
