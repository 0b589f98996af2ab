package coll

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/bench"
)

func TestLearn(t *testing.T) {
	const rows = `
{"bench":"coll","figure":"time","unit":"ms","value":30,"params":{"collective":"bcast","algorithm":"two-hop","size":1024,"predicted_ms":20}}
{"bench":"coll","figure":"time","unit":"ms","value":50,"params":{"collective":"bcast","algorithm":"two-hop","size":1024,"predicted_ms":20}}
{"bench":"coll","figure":"time","unit":"ms","value":40,"params":{"collective":"bcast","algorithm":"two-hop","size":1024,"predicted_ms":20}}
{"bench":"coll","figure":"time","unit":"ms","value":40,"params":{"collective":"bcast","algorithm":"two-hop","flits":8,"size":512,"predicted_ms":50}}
{"bench":"coll","figure":"time","unit":"ms","value":40,"params":{"collective":"bcast","implementation":"mpich","size":512}}
{"bench":"coll","figure":"time_beside_han","unit":"ms","value":1,"params":{"collective":"bcast","algorithm":"two-hop","size":1024,"predicted_ms":20}}
`
	read, err := bench.Read("rows", strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Learn(read, &out); err != nil {
		t.Fatal(err)
	}
	const want = "# collective, algorithm, bytes, times the predicted time\nbcast two-hop 1024 2.000\nbcast two-hop:8 512 0.800\n"
	if out.String() != want {
		t.Errorf("learned\n%swant\n%s", &out, want)
	}
	if err := Learn(read[4:], &out); err == nil || !strings.Contains(err.Error(), "--algorithms") {
		t.Errorf("from nothing: %v", err)
	}
}
