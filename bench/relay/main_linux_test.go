//go:build system

package relay

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/lab"
)

// TestMain runs the parts of other processes, and puts the tests into namespaces of their own.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "part" {
		if err := Part(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	lab.Main()
	os.Exit(m.Run())
}

// A short run covers everything: the hosts, both processes, every measurement and the proxy's own
// check that it copied nothing.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	err := Run(t.Context(), &out, Options{
		Self: []string{"/proc/self/exe", "part"}, Repeat: 1, Stream: 50 * time.Millisecond, Trips: 50, JSON: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := bench.Read("rows", &out)
	if err != nil {
		t.Fatal(err)
	}
	var figures []string
	for _, row := range rows {
		if row.Bench != "relay" || row.Value <= 0 && row.Figure != "added_one_way" || row.Params["direct"].(float64) <= 0 {
			t.Errorf("%+v", row)
		}
		figures = append(figures, fmt.Sprintf("%s/%v/%v/%v", row.Figure, row.Params["link"], row.Params["message"], row.Met != nil))
	}
	want := "[stream/unlimited/1.048576e+06/true round_trip/unlimited/1.048576e+06/false round_trip/unlimited/1/false " +
		"added_one_way/unlimited/1/true stream/1 Gb/s/1.048576e+06/true]"
	if fmt.Sprint(figures) != want {
		t.Errorf("measured %v, want %s", figures, want)
	}
}
