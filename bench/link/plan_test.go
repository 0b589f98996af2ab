package link

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/bench"
)

func TestValues(t *testing.T) {
	for _, c := range []struct {
		f     figure
		ns    float64
		count int
		want  string
	}{
		{figure{kind: halfRoundTrip, size: 1}, 9000, 100, "4.5 us"},
		{figure{kind: messageRate, size: 16}, 1e6, 500, "0.5 M/s"},
		{figure{kind: bandwidth, size: 1000}, 1e6, 2000, "2 GB/s"},
	} {
		v, unit := c.f.value(c.ns, c.count)
		if got := fmt.Sprint(v, " ", unit); got != c.want {
			t.Errorf("%s: %s, want %s", c.f.kind, got, c.want)
		}
	}
}

// Every target there is, and what it is compared with; a link that is exactly
// as good as each implementation meets none but those of at most one.
func TestTargets(t *testing.T) {
	var got []string
	for i := range scenarios {
		s := &scenarios[i]
		for _, f := range s.figures {
			for _, r := range []implementation{{name: nameLink}, {name: nameLinkTLS, secured: true}} {
				runs := make(map[string]*series)
				for _, name := range []string{nameCBlocking, nameCSpinning, namePlain, nameTLS, nameLink, nameLinkTLS} {
					runs[name] = &series{values: []float64{3, 4, 5}, congestion: "cubic"}
				}
				row := rows(s, f, runs, []implementation{r}, true)[0]
				if row.Ratio != 1 || row.Params["repeat"] != 3 || row.Params["spread"] != 0.25 || row.Params["congestion"] != "cubic" {
					t.Errorf("%+v", row)
				}
				if row.Met != nil {
					got = append(got, fmt.Sprintf("%s vs %s: %v %v", key(s, f, r), row.Against, row.Target, *row.Met))
				}
			}
		}
	}
	want := `
unlimited/half_round_trip/1/link vs c-spinning: 1.15 true
unlimited/message_rate/16/link vs c-blocking: 10 false
unlimited/bandwidth/65536/link vs c-blocking: 0.97 true
unlimited/bandwidth/262144/link vs c-blocking: 0.97 true
unlimited/bandwidth/1048576/link vs c-blocking: 0.97 true
unlimited/bandwidth/1048576/link-tls vs crypto-tls: 1.7 false
unlimited/bandwidth/4194304/link vs c-blocking: 0.97 true
one-cpu/half_round_trip/1/link vs c-blocking: 1.2 true
one-cpu/half_round_trip/1024/link vs c-blocking: 1.2 true
one-cpu/half_round_trip/65536/link vs c-blocking: 1.2 true
one-cpu/half_round_trip/1048576/link vs c-blocking: 1.2 true
one-cpu/half_round_trip/4194304/link vs c-blocking: 1.2 true
1-gbit/bandwidth/65536/link vs c-blocking: 0.97 true
1-gbit/bandwidth/1048576/link vs c-blocking: 0.97 true
1-gbit/bandwidth/1048576/link-tls vs c-blocking: 0.98 true
1-gbit/bandwidth/4194304/link vs c-blocking: 0.97 true
`
	if strings.Join(got, "\n") != strings.TrimSpace(want) {
		t.Errorf("targets:\n%s\nwant:%s", strings.Join(got, "\n"), want)
	}
}

// Without C nothing is held to targets that were set for C.
func TestTargetsWithoutC(t *testing.T) {
	s := &scenarios[0]
	for _, f := range s.figures {
		link, tls := implementation{name: nameLink}, implementation{name: nameLinkTLS, secured: true}
		if base := link.against(s, f, false); base != namePlain {
			t.Errorf("%s: against %q", key(s, f, link), base)
		}
		if row := link.judge(bench.Row{Against: namePlain}, s, f, false); row.Met != nil {
			t.Errorf("%s: has a target", key(s, f, link))
		}
		row := tls.judge(bench.Row{Against: tls.against(s, f, false)}, s, f, false)
		if has := row.Met != nil; has != (f == figure{bandwidth, mib, f.count}) {
			t.Errorf("%s: has a target: %v", key(s, f, tls), has)
		}
	}
}

func TestYardsticksHaveNone(t *testing.T) {
	s := &scenarios[0]
	for _, f := range s.figures {
		base := implementation{name: nameCBlocking}.against(s, f, true)
		if f.kind == halfRoundTrip && base != nameCSpinning || f.kind != halfRoundTrip && base != "" {
			t.Errorf("%s of %d bytes: C blocking is compared with %q", f.kind, f.size, base)
		}
	}
	if (implementation{name: nameCSpinning}).runsIn(&scenarios[1]) || !(implementation{name: nameCBlocking}).runsIn(&scenarios[1]) {
		t.Error("on one processor C blocks and does not spin")
	}
}
