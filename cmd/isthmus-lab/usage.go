package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
)

// roundTrip returns cmdline.Usage unless --rtt is at least least.
func roundTrip(c *cli.Context, what string, least time.Duration) error {
	if rtt := c.Duration("rtt"); rtt < least {
		return cmdline.Usage(fmt.Sprintf("%s: --rtt %v: want %v or more", what, rtt, least))
	}
	return nil
}
