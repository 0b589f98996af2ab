package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

func writeTable(w io.Writer, p plan, out outcome) error {
	var b strings.Builder
	fmt.Fprintf(&b, "ranks %d and %d, first round trip (sets up the link) %s\n", p.from, p.to, micros(out.first))
	fmt.Fprintf(&b, "%10s %16s %16s %12s\n", "bytes", "median", "least", "MB/s")
	for _, f := range out.figures {
		fmt.Fprintf(&b, "%10d %16s %16s %12.2f\n", f.bytes, micros(f.median), micros(f.min), f.bytesPerSecond()/1e6)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func micros(d time.Duration) string { return fmt.Sprintf("%.1f us", float64(d)/1e3) }

// line is the object that every bench of the suite prints for a figure. This
// one compares with nothing and has no target.
type line struct {
	Bench   string         `json:"bench"`
	Figure  string         `json:"figure"`
	Params  map[string]any `json:"params"`
	Value   float64        `json:"value"`
	Unit    string         `json:"unit"`
	Against *string        `json:"against"`
	Ratio   *float64       `json:"ratio"`
	Target  *float64       `json:"target"`
	Met     *bool          `json:"met"`
}

func writeJSON(w io.Writer, p plan, out outcome) error {
	enc := json.NewEncoder(w)
	put := func(name string, f figure, value float64, unit string) error {
		params := map[string]any{"from": p.from, "to": p.to, "bytes": f.bytes, "reps": p.reps}
		if f.technique != "" {
			params["technique"] = f.technique
		}
		return enc.Encode(line{Bench: "pingpong", Figure: name, Params: params, Value: value, Unit: unit})
	}
	if err := put("first_round_trip", figure{}, float64(out.first)/1e3, "us"); err != nil {
		return err
	}
	for _, f := range out.figures {
		if err := put("round_trip_median", f, float64(f.median)/1e3, "us"); err != nil {
			return err
		}
		if err := put("round_trip_min", f, float64(f.min)/1e3, "us"); err != nil {
			return err
		}
		if err := put("rate", f, f.bytesPerSecond(), "bytes/s"); err != nil {
			return err
		}
	}
	return nil
}
