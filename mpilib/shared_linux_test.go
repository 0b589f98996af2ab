package mpilib

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Messages of one node use shared memory soon after their link is set up, and the report says so;
// they use links if that is disabled, with the reason.
func TestSharedInReport(t *testing.T) {
	for _, tc := range []struct {
		name, via, reason string
		opts              []Option
	}{
		{"shared", "shared memory", "", nil},
		{"switched off", "", "switched off", []Option{WithoutSharedMemory()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
				told := func() bool {
					links := c.world.Links()
					for _, l := range links {
						if l.Technique != "local" || l.Via != tc.via || !strings.Contains(l.Reason, tc.reason) {
							return false
						}
					}
					return len(links) == 2
				}
				for end := time.Now().Add(30 * time.Second); ; {
					if err := Barrier(ctx, c); err != nil {
						return err
					}
					all := []bool{told()}
					if err := Allreduce(ctx, c, all, all, LAnd); err != nil {
						return err
					}
					if all[0] {
						return nil
					}
					late := []bool{time.Now().After(end)}
					if err := Bcast(ctx, c, late, 0); err != nil {
						return err
					}
					if late[0] {
						return fmt.Errorf("%+v", c.world.Links())
					}
				}
			}, tc.opts...)
		})
	}
}
