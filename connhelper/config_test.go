package connhelper

import (
	"testing"

	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
)

func TestSample(t *testing.T) { daemontest.Sample[Config](t, "isthmus-helper") }
