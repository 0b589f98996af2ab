// Isthmus-helper is the daemon on a node that connects its processes to those of other nodes; see
// package connhelper.
package main

import (
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
)

func main() {
	jobagent.Main()
	connhelper.Main()
}
