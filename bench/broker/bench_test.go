package broker

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/internal/daemon"
)

// TestMain is the broker when a benchmark starts this binary as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "broker" {
		os.Args = slices.Delete(os.Args, 1, 2)
		daemon.Main(broker.Spec())
	}
	os.Exit(m.Run())
}

func TestBrokerThatDoesNotStart(t *testing.T) {
	err := Run(t.Context(), new(bytes.Buffer), Options{Broker: []string{os.Args[0], "broker", "--lease=never"}, Sites: 1, Processes: 1})
	if err == nil || !strings.Contains(err.Error(), "start the broker") || !strings.Contains(err.Error(), "never") {
		t.Errorf("got %v", err)
	}
}
