// Command isthmus-proxy relays links between processes that cannot reach each
// other.
package main

import "github.com/isthmus-grid/isthmus/proxy"

func main() { proxy.Main() }
