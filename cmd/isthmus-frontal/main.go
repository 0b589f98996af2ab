// Command isthmus-frontal is a site's gateway; package frontal says what it does.
package main

import (
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/daemon"
)

func main() { daemon.Main(frontal.Spec()) }
