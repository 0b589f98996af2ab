package runjob

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/reliability"
)

// maxReplicas is up to how many replicas --dry-run shows the risk.
const maxReplicas = 4

// riskOf returns the risk that --mtbf and --walltime ask for, or nil without them.
func riskOf(c *cli.Context, ranks int) (*allocate.Risk, error) {
	if !c.IsSet("mtbf") && !c.IsSet("walltime") {
		return nil, nil
	}
	if !c.IsSet("mtbf") || !c.IsSet("walltime") {
		return nil, cmdline.Usage("run: --mtbf and --walltime go together: how often a host fails, and how long the job runs")
	}
	mtbf, err := parseTime("mtbf", c.String("mtbf"))
	if err != nil {
		return nil, err
	}
	walltime, err := parseTime("walltime", c.String("walltime"))
	if err != nil {
		return nil, err
	}
	r := &allocate.Risk{MTBF: mtbf, Walltime: walltime}
	for replicas := range maxReplicas {
		r.Failure = append(r.Failure, reliability.Failure(ranks, replicas+1, walltime.Seconds(), mtbf.Seconds()))
	}
	return r, nil
}

// parseTime reads a positive time: a Go duration, or a number of days such as 30d.
func parseTime(flag, text string) (time.Duration, error) {
	wrong := cmdline.Usage(fmt.Sprintf("run: --%s %.40s: want a time above 0, such as 90m, 24h or 30d", flag, text))
	if days, cut := strings.CutSuffix(text, "d"); cut {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || !(n > 0 && n < math.MaxInt64/float64(24*time.Hour)) {
			return 0, wrong
		}
		return time.Duration(n * float64(24*time.Hour)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, wrong
	}
	return d, nil
}
