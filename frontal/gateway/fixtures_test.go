package gateway

import (
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

const job = overlay.JobID("demo-0123456789abcdef0123456789abcdef")

var epoch0 = time.Date(2026, 1, 2, 12, 3, 5, 0, time.Local)

func proc(rank uint32) overlay.ProcessName { return overlay.ProcessName{Job: job, Rank: rank} }

// patience bounds every wait of the tests. It only affects how long a broken test takes.
const patience = time.Minute
