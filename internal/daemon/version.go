package daemon

import (
	"fmt"
	"runtime/debug"

	"github.com/isthmus-grid/isthmus/wire"
)

// Version describes the program in one line: its version, protocol and build. The name is the
// program's.
func Version(name string) string {
	version, commit, changed := "unknown", "", ""
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name + " (built without module support)"
	}
	if info.Main.Version != "" {
		version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = ", commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return fmt.Sprintf("%s %s (protocol %d, %s%s%s)", name, version, wire.Version, info.GoVersion, commit, changed)
}
