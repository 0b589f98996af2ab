package connhelper

import (
	"testing"

	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/overlay"
)

// An ordinary user's helper takes only that user's jobs.
func TestOwnJobs(t *testing.T) {
	takes := ownJobs(1001, []string{"alice@a/*"})
	for _, c := range []struct {
		who  nodeservice.Asker
		want bool
	}{
		{nodeservice.Asker{Node: overlay.NodeID{Site: "a", Name: "n7"}, User: "alice", UID: 7}, true},
		{nodeservice.Asker{Node: overlay.NodeID{Site: "b", Name: "n7"}, User: "alice", UID: 1001}, false},
		{nodeservice.Asker{Node: overlay.NodeID{Site: "a", Name: "n7"}, User: "bob", UID: 1001}, false},
		{nodeservice.Asker{Node: overlay.NodeID{Site: "c", Name: "n1"}, User: "alias", UID: 1001, Here: true}, true},
		{nodeservice.Asker{Node: overlay.NodeID{Site: "c", Name: "n1"}, User: "root", UID: 0, Here: true}, false},
	} {
		if err := takes(c.who); (err == nil) != c.want {
			t.Errorf("%+v: %v", c.who, err)
		}
	}
}

// System accounts run no jobs; root of a namespace of one account is an ordinary user.
func TestSystemAccounts(t *testing.T) {
	for _, c := range []struct {
		uid  int
		m    string
		want bool
	}{
		{0, "0 0 4294967295", true}, {0, "0 1000 1", false}, {0, "0 100000 65536", true}, {999, "0 0 4294967295", true}, {1000, "0 0 4294967295", false}, {0, "", true},
	} {
		if got := isSystem(c.uid, []byte(c.m)); got != c.want {
			t.Errorf("%d in %q: %v", c.uid, c.m, got)
		}
	}
}
