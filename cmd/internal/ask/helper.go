package ask

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
)

// NoHelper, as the value of the flag, says that none is to be used.
const NoHelper = "none"

// HelperFlag is the flag that names this node's helper; see Helper.
func HelperFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "helper", EnvVars: []string{ranks.EnvHelper}, Usage: usage, DefaultText: local.DefaultSocket + ", if there is one"}
}

// Helper returns the socket of this node's helper: the one of the flag or its variable, or the one
// that helpers have by default, if it is there. Without any it returns "".
func Helper(c *cli.Context) string {
	return helperAt(c.IsSet("helper"), c.String("helper"), local.DefaultSocket)
}

func helperAt(named bool, name, byDefault string) string {
	if named {
		if name == NoHelper {
			return ""
		}
		return name
	}
	if info, err := os.Stat(byDefault); err == nil && info.Mode()&os.ModeSocket != 0 {
		return byDefault
	}
	return ""
}
