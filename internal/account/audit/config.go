package audit

import (
	"path/filepath"

	"github.com/isthmus-grid/isthmus/internal/daemon"
)

// Config holds the audit log's part of a daemon's settings.
type Config struct {
	Folder    string      `yaml:"folder" example:"$STATE/audit" help:"Folder for the audit log, created if missing. Empty: the folder audit in the service manager's state directory ($STATE_DIRECTORY); without a state directory there is no audit log. \"none\" is no audit log."`
	Size      daemon.Size `yaml:"size" default:"64MiB" min:"4KiB" max:"16GiB" help:"Size at which a new file is started; each day and each start of the daemon also start one."`
	Keep      daemon.Size `yaml:"keep" default:"8GiB" min:"0" help:"Size of all files together above which the oldest are removed. 0 keeps all."`
	OnFailure string      `yaml:"on_failure" default:"go-on" enum:"go-on,refuse" help:"What to do while the log cannot be written, as on a full disk: continue and count the lost records, or refuse new links."`
}

const none = "none"

// Check validates the keys against each other.
func (c Config) Check() error {
	if c.Folder != "" && c.Folder != none && !filepath.IsAbs(c.Folder) {
		return daemon.Wrong("folder", "%q is not an absolute path", c.Folder)
	}
	if c.Keep != 0 && c.Keep < 2*c.Size {
		return daemon.Wrong("keep", "%v is less than two files of size %v", c.Keep, c.Size)
	}
	return nil
}
