// Isthmus-starter is the daemon that starts jobs in accounts of their own; see package
// launch/starter.
package main

import (
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/starter"
)

func main() {
	jobagent.Main()
	starter.Main()
}
