package reserve

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
)

func newNode(t *testing.T, p Policy) *Node {
	t.Helper()
	if p.Allow == nil {
		p.Allow = everyone
	}
	n, err := NewNode(7, p)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// everyone is the default rule of tests.
var everyone = []Rule{{Identity: "*"}, {Identity: "*@*/*"}}

func ask(key byte, processes int) Ask { return Ask{Key: Key{key}, Job: "j", Processes: processes} }

// say writes an answer without what differs in every run.
func say(m Message) string {
	switch m := m.(type) {
	case OK:
		return fmt.Sprintf("ok %d for %v", m.Processes, m.Lease)
	case NOK:
		return "nok " + string(m.Reason)
	case Refused:
		return "refused " + string(m.Reason)
	case nil:
		return "nothing"
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", m), "reserve."))
}

func expect(t *testing.T, n *Node, from Requester, m Message, now time.Time, want string) []Action {
	t.Helper()
	answer, actions := n.Receive(from, m, now)
	if got := say(answer); got != want {
		t.Errorf("%T %v: %s, want %s", m, m, got, want)
	}
	return actions
}

// The two examples of the paper's section 4.1.
func TestJobsAndProcesses(t *testing.T) {
	two := newNode(t, Policy{Jobs: 2, Processes: 1})
	expect(t, two, person(1), ask(1, 9), epoch, "ok 1 for 30s")
	expect(t, two, person(2), ask(2, 9), epoch, "ok 1 for 30s")
	expect(t, two, person(3), ask(3, 9), epoch, "nok busy")
	one := newNode(t, Policy{Jobs: 1, Processes: 2})
	expect(t, one, person(1), ask(1, 9), epoch, "ok 2 for 30s")
	expect(t, one, person(2), ask(2, 9), epoch, "nok busy")
	expect(t, newNode(t, Policy{}), person(1), ask(1, 1), epoch, "nok denied")
}

func TestAJobCountsUntilItHasExited(t *testing.T) {
	n := newNode(t, Policy{Jobs: 1, Processes: 2})
	hold := Hold{7, 1}
	processes := []allocate.Process{{Rank: 3}, {Rank: 4}}
	expect(t, n, person(1), ask(1, 2), epoch, "ok 2 for 30s")
	expect(t, n, person(1), ask(1, 2), epoch, "ok 2 for 30s") // a duplicate
	expect(t, n, person(1), ask(1, 1), epoch, "nok used")     // the key for something else
	if actions := expect(t, n, person(1), Start{Key{1}, hold, processes}, epoch, "started"); len(actions) != 1 || fmt.Sprint(actions[0]) != fmt.Sprint(Launch{Key{1}, "j", processes}) {
		t.Errorf("start: actions %v", actions)
	}
	if actions := expect(t, n, person(1), Start{Key{1}, hold, processes}, epoch, "started"); len(actions) != 0 {
		t.Errorf("start, doubled: actions %v", actions)
	}
	expect(t, n, person(1), Start{Key{1}, hold, processes[:1]}, epoch, "refused used")
	expect(t, n, person(1), Commit{Key{1}, hold}, epoch, "committed")
	late := epoch.Add(time.Hour)
	expect(t, n, person(2), ask(2, 1), late, "nok busy")
	if actions := expect(t, n, person(1), Cancel{Key{1}}, late, "cancelled"); len(actions) != 1 || fmt.Sprint(actions[0]) != fmt.Sprint(Kill{Key{1}}) {
		t.Errorf("cancel: actions %v", actions)
	}
	expect(t, n, person(2), ask(2, 1), late, "nok busy")
	n.Exited(Key{1})
	expect(t, n, person(2), ask(2, 1), late, "ok 1 for 30s")
}

func TestKeysAreGoodOnceAndInTime(t *testing.T) {
	n := newNode(t, Policy{Jobs: 9, Processes: 9})
	start := func(key byte, serial uint64) Start {
		return Start{Key{key}, Hold{7, serial}, []allocate.Process{{Rank: 0}}}
	}
	expect(t, n, person(1), start(9, 1), epoch, "refused unknown") // never booked

	expect(t, n, person(1), ask(1, 1), epoch, "ok 1 for 30s")
	expect(t, n, person(2), start(1, 1), epoch, "refused unknown") // another requester has the key
	expect(t, n, person(1), start(1, 2), epoch, "refused unknown") // another hold
	expect(t, n, person(2), Cancel{Key{1}}, epoch, "refused unknown")
	expect(t, n, person(1), start(1, 1), epoch.Add(30*time.Second), "refused expired")
	expect(t, n, person(1), ask(1, 1), epoch.Add(30*time.Second), "nok expired")

	expect(t, n, person(1), ask(2, 1), epoch, "ok 1 for 30s")
	expect(t, n, person(1), Start{Key{2}, Hold{7, 2}, make([]allocate.Process, 2)}, epoch, "refused toomany")
	expect(t, n, person(1), Start{Key{2}, Hold{7, 2}, nil}, epoch, "refused toomany")
	expect(t, n, person(1), start(2, 2), epoch, "started")
	n.Exited(Key{2})
	expect(t, n, person(1), Commit{Key{2}, Hold{7, 2}}, epoch, "committed") // a short job has ended already
	if actions := expect(t, n, person(1), start(2, 2), epoch, "started"); len(actions) != 0 {
		t.Errorf("a replayed start launches %v", actions)
	}
	expect(t, n, person(2), start(2, 2), epoch, "refused done")
	expect(t, n, person(1), ask(2, 1), epoch, "nok done")

	// Long after the key was forgotten, its Ask books anew, and its Start starts nothing.
	for i := range maxUsed + 1 {
		n.Receive(person(1), Cancel{Key{0, 1, byte(i), byte(i >> 8)}}, epoch)
	}
	if len(n.used) != maxUsed || len(n.oldest) != maxUsed {
		t.Errorf("%d keys and %d ages are remembered, at most %d", len(n.used), len(n.oldest), maxUsed)
	}
	expect(t, n, person(1), ask(2, 1), epoch, "ok 1 for 30s")
	if actions := expect(t, n, person(1), start(2, 2), epoch, "refused unknown"); len(actions) != 0 {
		t.Errorf("a start of an older hold launches %v", actions)
	}
}

func TestWhatIsNotCommittedIsKilled(t *testing.T) {
	n := newNode(t, Policy{Jobs: 1, Processes: 1, Lease: 10 * time.Second})
	expect(t, n, person(1), ask(1, 1), epoch, "ok 1 for 10s")
	expect(t, n, person(1), Commit{Key{1}, Hold{7, 1}}, epoch, "refused invalid")
	expect(t, n, person(1), Start{Key{1}, Hold{7, 1}, []allocate.Process{{}}}, epoch, "started")
	if next := n.Next(); !next.Equal(epoch.Add(10 * time.Second)) {
		t.Errorf("due at %v", next)
	}
	if actions := n.Tick(epoch.Add(10 * time.Second)); len(actions) != 1 {
		t.Errorf("actions %v, want a kill", actions)
	}
	expect(t, n, person(1), Commit{Key{1}, Hold{7, 1}}, epoch.Add(10*time.Second), "refused expired")
	n.Exited(Key{1})
	if len(n.List()) != 0 {
		t.Errorf("left: %v", n.List())
	}
}

func TestRenewingEnds(t *testing.T) {
	n := newNode(t, Policy{Jobs: 1, Processes: 1, Lease: 10 * time.Second, Longest: 25 * time.Second})
	expect(t, n, person(1), ask(1, 1), epoch, "ok 1 for 10s")
	renew := Renew{Key{1}, Hold{7, 1}}
	expect(t, n, person(1), renew, epoch.Add(9*time.Second), "ok 1 for 10s")
	expect(t, n, person(1), renew, epoch.Add(18*time.Second), "ok 1 for 7s")
	expect(t, n, person(1), renew, epoch.Add(25*time.Second), "refused expired")
}

// A started reservation keeps its lease, too, until all other hosts have started.
func TestRenewingWhatWasStarted(t *testing.T) {
	n := newNode(t, Policy{Jobs: 1, Processes: 1, Lease: 10 * time.Second, Longest: 25 * time.Second})
	expect(t, n, person(1), ask(1, 1), epoch, "ok 1 for 10s")
	start := Start{Key{1}, Hold{7, 1}, []allocate.Process{{}}}
	expect(t, n, person(1), start, epoch.Add(2*time.Second), "started")
	expect(t, n, person(1), Renew{Key{1}, Hold{7, 1}}, epoch.Add(11*time.Second), "started")
	expect(t, n, person(1), start, epoch.Add(20*time.Second), "started")
	if next := n.Next(); next != epoch.Add(25*time.Second) {
		t.Errorf("the lease ends %v after the ask, want 25 s, the longest", next.Sub(epoch))
	}
	expect(t, n, person(1), Commit{Key{1}, Hold{7, 1}}, epoch.Add(24*time.Second), "committed")
	expect(t, n, person(1), Renew{Key{1}, Hold{7, 1}}, epoch.Add(99*time.Second), "started")
	if next := n.Next(); !next.IsZero() {
		t.Errorf("what runs would end at %v", next)
	}
}

func TestMemoryAndCPUAreShared(t *testing.T) {
	n := newNode(t, Policy{Jobs: 9, Processes: 4, Memory: 8 << 30, CPU: 4000})
	need := func(key byte, processes int, memory int64, cpu int) Ask {
		return Ask{Key: Key{key}, Processes: processes, Memory: memory, CPU: cpu}
	}
	expect(t, n, person(1), need(1, 9, 2<<30, 1000), epoch, "ok 4 for 30s")
	expect(t, n, person(1), need(2, 1, 1, 0), epoch, "nok memory")
	expect(t, n, person(1), need(3, 1, 0, 1), epoch, "nok cpu")
	expect(t, n, person(1), need(4, 9, 0, 0), epoch, "ok 4 for 30s")
	// Three of four started: the rest is free again.
	expect(t, n, person(1), Start{Key{1}, Hold{7, 1}, make([]allocate.Process, 3)}, epoch, "started")
	expect(t, n, person(1), need(5, 9, 1<<30, 500), epoch, "ok 2 for 30s")
	expect(t, n, person(1), need(6, 1, -1, 0), epoch, "nok invalid")
	expect(t, n, person(1), need(7, 0, 0, 0), epoch, "nok invalid")
	expect(t, n, person(1), need(0, 1, 0, 0), epoch, "nok invalid")
	n.Adopt(Hold{7, 7}, person(1), Ask{Key: Key{8}, Job: "old", Processes: 2}, make([]allocate.Process, 2), true, epoch)
	if got := len(n.List()); got != 4 {
		t.Errorf("%d reservations, want 4", got)
	}
}

func TestWhoMayBook(t *testing.T) {
	lyon := Requester{Identity: "ann", Site: "lyon", Address: netip.MustParseAddr("10.1.2.3")}
	for _, c := range []struct {
		name        string
		allow, deny []Rule
		in          bool
	}{
		{"everyone", nil, nil, true},
		{"nobody", []Rule{}, nil, false},
		{"denied by site", nil, []Rule{{Site: "lyon"}}, false},
		{"denied by range", nil, []Rule{{Addresses: netip.MustParsePrefix("10.1.0.0/16")}}, false},
		{"denied by identity", nil, []Rule{{Identity: "ann"}}, false},
		{"another is denied", nil, []Rule{{Identity: "bob"}, {Site: "nancy"}, {Addresses: netip.MustParsePrefix("10.2.0.0/16")}}, true},
		{"allowed", []Rule{{Site: "nancy"}, {Identity: "ann"}}, nil, true},
		{"another is allowed", []Rule{{Identity: "bob"}}, nil, false},
		{"denied goes before allowed", []Rule{{Identity: "ann"}}, []Rule{{Site: "lyon"}}, false},
		{"all fields must fit", nil, []Rule{{Identity: "ann", Site: "nancy"}}, true},
	} {
		n := newNode(t, Policy{Jobs: 1, Processes: 1, Allow: c.allow, Deny: c.deny})
		answer, _ := n.Receive(lyon, ask(1, 1), epoch)
		if nok, refused := answer.(NOK); refused == c.in || refused && nok.Reason != Denied {
			t.Errorf("%s: %v", c.name, answer)
		}
	}
	mapped := Requester{Identity: "ann", Site: "lyon", Address: netip.MustParseAddr("::ffff:10.1.2.3")}
	if ok, _ := (Policy{Deny: []Rule{{Addresses: netip.MustParsePrefix("10.1.0.0/16")}}}).Allows(mapped); ok {
		t.Error("an IPv4 address in IPv6 clothes passes the rule for its range")
	}
	for _, p := range []Policy{{Jobs: -1}, {Lease: -1}, {Deny: []Rule{{}}}, {Allow: []Rule{{}}}, {Deny: []Rule{{Identity: "[a"}}}} {
		if _, err := NewNode(1, p); err == nil {
			t.Errorf("%+v is taken", p)
		}
	}
}

// An owner names users by pattern, and a refused user learns which rule decided.
func TestRulesAreNamed(t *testing.T) {
	q := Requester{Identity: "alice@nancy/n1", Site: "nancy", Address: netip.MustParseAddr("192.0.2.1")}
	for pattern, fits := range map[string]bool{
		"alice@nancy/n1": true, "alice@*/*": true, "*@nancy/*": true, "alice@nancy/n?": true,
		"bob@*/*": false, "*": false, "alice@lyon/*": false, "alice@nancy/n11": false,
	} {
		if ok, why := (Policy{Allow: []Rule{{Identity: pattern}}}).Allows(q); ok != fits || ok != (why == "") {
			t.Errorf("%q: %v, %q", pattern, ok, why)
		}
	}
	deny := Policy{Deny: []Rule{{Identity: "alice@*/*", Site: "nancy", Addresses: netip.MustParsePrefix("192.0.2.0/24")}}}
	if _, why := deny.Allows(q); why != "the owner denies identity alice@*/*, site nancy, addresses 192.0.2.0/24" {
		t.Error(why)
	}
	if _, why := (Policy{Allow: []Rule{{Site: "lyon"}}}).Allows(q); why != "no rule of the owner allows alice@nancy/n1 of site nancy at 192.0.2.1; what does: {site: nancy} in offer.allow of its helper's settings" {
		t.Error(why)
	}
}

// submit returns a submission of n ranks to a number of hosts, with Spread, and the messages of its
// Begin.
func submit(t *testing.T, ranks, hosts int, cfg Config) (*Submission, []Send) {
	t.Helper()
	var candidates []Candidate
	for i := range hosts {
		candidates = append(candidates, Candidate{nodeName(i), time.Duration(i), 0, keyOf(0, i)})
	}
	s, err := New("j", allocate.Job{Ranks: ranks, Copies: 1}, allocate.Spread{}, candidates, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Begin(epoch)
}

func grant(i int) OK {
	return OK{Key: keyOf(0, i), Hold: Hold{1, 1}, Processes: 1, Lease: 30 * time.Second}
}

// text writes messages as "n0 Ask, n1 Cancel".
func text(all []Send) string {
	var b []string
	for _, s := range all {
		b = append(b, s.To.Name+" "+strings.TrimPrefix(fmt.Sprintf("%T", s.Message), "reserve."))
	}
	return strings.Join(b, ", ")
}

func is(t *testing.T, all []Send, want string) {
	t.Helper()
	if got := text(all); got != want {
		t.Errorf("sends %q, want %q", got, want)
	}
}

// Five hosts are asked for two processes (2 + 3 log2 2); the third answers first, and the plan is
// made as soon as no nearer one can answer.
func TestOverbookingAndTheOrderOfAnswers(t *testing.T) {
	s, out := submit(t, 2, 9, Config{})
	is(t, out, "n0 Ask, n1 Ask, n2 Ask, n3 Ask, n4 Ask")
	is(t, s.Receive(nodeName(3), grant(3), epoch), "")
	is(t, s.Receive(nodeName(2), grant(2), epoch), "")
	is(t, s.Receive(nodeName(1), NOK{keyOf(0, 1), Denied, ""}, epoch), "")
	is(t, s.Receive(nodeName(0), grant(0), epoch), "n3 Cancel")
	if s.Phase() != Planned || s.Plan().Hosts[1].Node != nodeName(2) {
		t.Fatalf("%s, plan %+v", s.Phase(), s.Plan())
	}
	is(t, s.Receive(nodeName(4), grant(4), epoch), "n4 Cancel") // too late
	if len(s.Dead()) != 0 || s.Refusals()[nodeName(1)] != Denied {
		t.Errorf("dead %v, refusals %v: a NOK is not dead", s.Dead(), s.Refusals())
	}
	is(t, s.Start(epoch), "n0 Start, n2 Start")
	is(t, s.Receive(nodeName(0), Started{keyOf(0, 0)}, epoch), "")
	is(t, s.Tick(epoch.Add(500*time.Millisecond)), "n2 Start, n3 Cancel, n4 Cancel")
	is(t, s.Receive(nodeName(2), Started{keyOf(0, 2)}, epoch), "n0 Commit, n2 Commit")
	s.Receive(nodeName(0), Committed{keyOf(0, 0)}, epoch)
	s.Receive(nodeName(2), Committed{keyOf(0, 2)}, epoch)
	if s.Phase() != Launched || s.Err() != nil {
		t.Errorf("%s, %v", s.Phase(), s.Err())
	}
	is(t, s.Cancel(epoch), "n0 Cancel, n2 Cancel")
}

func TestSilentHostsAreDeadAndOthersAreAsked(t *testing.T) {
	s, _ := submit(t, 2, 7, Config{})
	for i := range 4 {
		s.Lost(nodeName(i), epoch)
	}
	if next := s.Next(); next.After(epoch.Add(2 * time.Second)) {
		t.Errorf("due at %v", next)
	}
	is(t, s.Tick(epoch.Add(2*time.Second)), "n4 Cancel, n5 Ask, n6 Ask")
	if fmt.Sprint(s.Dead()) != "[s/n0 s/n1 s/n2 s/n3 s/n4]" {
		t.Errorf("dead: %v", s.Dead())
	}
	is(t, s.Receive(nodeName(4), grant(4), epoch), "n4 Cancel")                            // it is alive
	s.Receive(nodeName(3), NOK{keyOf(0, 3), Busy, "it has 2 jobs, and may have 2"}, epoch) // this, too
	if fmt.Sprint(s.Dead()) != "[s/n0 s/n1 s/n2]" {
		t.Errorf("dead: %v", s.Dead())
	}
	s.Receive(nodeName(5), grant(5), epoch)
	is(t, s.Receive(nodeName(6), NOK{keyOf(0, 6), Busy, "it has 3 jobs"}, epoch), "n5 Cancel")
	s.Receive(nodeName(4), Cancelled{keyOf(0, 4)}, epoch)
	s.Receive(nodeName(5), Cancelled{keyOf(0, 5)}, epoch)
	var lack *allocate.Shortage
	if s.Phase() != Failed || !errors.As(s.Err(), &lack) || !strings.Contains(s.Err().Error(), "1 of 7 hosts booked, 3 did not answer, 2 said busy (s/n3: it has 2 jobs, and may have 2): 2 processes") {
		t.Errorf("%s: %v", s.Phase(), s.Err())
	}
}

// A host that is dropped during staging is replaced by a spare; without one, further hosts are
// asked.
func TestDroppedHostsAreReplaced(t *testing.T) {
	s, _ := submit(t, 2, 6, Config{Spares: 1})
	for i := range 5 {
		if i != 1 {
			s.Receive(nodeName(i), grant(i), epoch)
		}
	}
	is(t, s.Receive(nodeName(1), grant(1), epoch), "n3 Cancel, n4 Cancel")
	is(t, s.Drop(nodeName(0), epoch), "n0 Cancel")
	if s.Phase() != Planned || len(s.Plan().Used()) != 2 || s.Plan().Hosts[1].Node != nodeName(2) {
		t.Errorf("%s, plan %+v", s.Phase(), s.Plan())
	}
	is(t, s.Tick(epoch.Add(10*time.Second)), "n1 Renew, n2 Renew")
	is(t, s.Receive(nodeName(1), Refused{keyOf(0, 1), Expired, ""}, epoch.Add(10*time.Second)), "n5 Ask")
	s.Receive(nodeName(2), grant(2), epoch.Add(10*time.Second))
	s.Receive(nodeName(5), grant(5), epoch.Add(10*time.Second))
	if s.Phase() != Planned {
		t.Errorf("%s: %v", s.Phase(), s.Err())
	}
}

func TestAHostThatDoesNotStartFailsTheJob(t *testing.T) {
	s, _ := submit(t, 1, 1, Config{})
	s.Receive(nodeName(0), grant(0), epoch)
	s.Start(epoch)
	is(t, s.Tick(epoch.Add(10*time.Second)), "n0 Start, n0 Cancel")
	s.Tick(epoch.Add(20 * time.Second))
	if s.Phase() != Failed || !strings.Contains(s.Err().Error(), "no answer within 10s from s/n0 while starting") || !strings.Contains(s.Err().Error(), "(s/n0 did not hear of it)") {
		t.Errorf("%s: %v", s.Phase(), s.Err())
	}
	if next := s.Next(); !next.IsZero() {
		t.Errorf("still due at %v", next)
	}
}

// A host that has started waits for a slow one: its lease is renewed for as long as that takes.
func TestLeasesOutliveASlowStart(t *testing.T) {
	s, _ := submit(t, 2, 2, Config{Begin: time.Minute, Resend: 20 * time.Second})
	s.Receive(nodeName(0), grant(0), epoch)
	s.Receive(nodeName(1), grant(1), epoch)
	is(t, s.Start(epoch), "n0 Start, n1 Start")
	is(t, s.Receive(nodeName(0), Started{keyOf(0, 0)}, epoch), "")
	if next := s.Next(); next != epoch.Add(10*time.Second) {
		t.Errorf("the next thing is due after %v, want a third of the lease of 30 s", next.Sub(epoch))
	}
	is(t, s.Tick(epoch.Add(10*time.Second)), "n0 Renew")
	is(t, s.Receive(nodeName(0), Started{keyOf(0, 0)}, epoch.Add(10*time.Second)), "")
	is(t, s.Tick(epoch.Add(20*time.Second)), "n0 Renew, n1 Start")
	is(t, s.Receive(nodeName(1), Started{keyOf(0, 1)}, epoch.Add(25*time.Second)), "n0 Commit, n1 Commit")
	is(t, s.Tick(epoch.Add(45*time.Second)), "n0 Commit, n1 Commit")

	s, _ = submit(t, 2, 2, Config{})
	s.Receive(nodeName(0), OK{Key: keyOf(0, 0), Hold: Hold{1, 1}, Processes: 1, Lease: time.Nanosecond}, epoch)
	s.Receive(nodeName(1), grant(1), epoch)
	s.Start(epoch)
	s.Receive(nodeName(0), Started{keyOf(0, 0)}, epoch)
	if next := s.Next(); next != epoch.Add(50*time.Millisecond) {
		t.Errorf("a lease of nothing is renewed after %v", next.Sub(epoch))
	}
}

func TestLiesOfHosts(t *testing.T) {
	s, _ := submit(t, 4, 1, Config{})
	s.Receive(nodeName(0), OK{Key: keyOf(0, 1), Hold: Hold{}, Processes: 9, Lease: time.Second}, epoch) // the key of another
	s.Receive(nodeName(9), OK{Key: keyOf(0, 0), Hold: Hold{}, Processes: 9, Lease: time.Second}, epoch) // an unknown node
	s.Receive(nodeName(0), nil, epoch)
	if s.Phase() != Booking {
		t.Fatalf("%s", s.Phase())
	}
	s.Receive(nodeName(0), OK{Key: keyOf(0, 0), Hold: Hold{1, 1}, Processes: 1 << 40, Lease: 1 << 62}, epoch)
	if s.Phase() != Planned || len(s.Plan().Hosts[0].Processes) != 4 || s.at[nodeName(0)].lease != longestLease {
		t.Errorf("%s, %+v", s.Phase(), s.at[nodeName(0)])
	}
	s, _ = submit(t, 4, 1, Config{})
	is(t, s.Receive(nodeName(0), OK{Key: keyOf(0, 0), Hold: Hold{1, 1}, Processes: -4, Lease: time.Second}, epoch), "n0 Cancel")
	if s.Refusals()[nodeName(0)] != Invalid || s.Phase() < Cancelling {
		t.Errorf("%s, %v", s.Phase(), s.Refusals())
	}
}

func TestCandidatesAreChecked(t *testing.T) {
	job := allocate.Job{Ranks: 1, Copies: 1}
	for _, candidates := range [][]Candidate{
		{{Node: nodeName(0)}},
		{{Node: nodeName(0), Key: Key{1}}, {Node: nodeName(0), Key: Key{2}}},
		{{Node: nodeName(0), Key: Key{1}}, {Node: nodeName(1), Key: Key{1}}},
	} {
		if _, err := New("j", job, allocate.Spread{}, candidates, Config{}); err == nil {
			t.Errorf("%v is taken", candidates)
		}
	}
	if _, err := New("j", allocate.Job{}, allocate.Spread{}, nil, Config{}); err == nil {
		t.Error("a job of no ranks is taken")
	}
	s, _ := submit(t, 1, 0, Config{})
	if s.Phase() != Failed || s.Err() == nil {
		t.Errorf("without candidates: %s", s.Phase())
	}
	s, _ = submit(t, 1, 1, Config{})
	s.Cancel(epoch)
	if !errors.Is(s.Err(), ErrCancelled) {
		t.Errorf("cancelled: %v", s.Err())
	}
	if got := (Key{0xab, 0xcd, 0xef, 0x12}).String(); got != "abcdef..." {
		t.Errorf("a key is printed as %s", got)
	}
}

// What a job asks for is granted only where each is allowed for whom it asks: its submitter, and the account and
// node that vouch for it. The node's address is not the submitter's.
func TestAllPartsMustBeAllowed(t *testing.T) {
	open := Requester{Identity: "mallory@open/n9", Site: "open"}
	closed := Requester{Identity: "1900000001@closed/n1", Site: "closed", Address: netip.MustParseAddr("10.9.0.1")}
	job := Requester{Identity: open.Identity + " via " + closed.Identity, Site: "closed", Address: closed.Address, Parts: []Requester{open, closed}}
	for _, c := range []struct {
		name        string
		allow, deny []Rule
		want        string // in the refusal; "": none
	}{
		{"the node's site", []Rule{{Site: "closed"}}, nil, "{site: open} in offer.allow"},
		{"the node's address", []Rule{{Addresses: netip.MustParsePrefix("10.9.0.0/16")}}, nil, "{site: open} in offer.allow"},
		{"the submitter's site", []Rule{{Site: "open"}}, nil, "{site: closed} in offer.allow"},
		{"both", []Rule{{Site: "closed"}, {Identity: "mallory@*/*"}}, nil, ""},
		{"everybody", []Rule{{Identity: "*@*/*"}}, nil, ""},
		{"everybody but the submitter", []Rule{{Identity: "*@*/*"}}, []Rule{{Identity: "mallory@*/*"}}, "the owner denies"},
		{"everybody but the node", []Rule{{Identity: "*@*/*"}}, []Rule{{Addresses: netip.MustParsePrefix("10.9.0.0/16")}}, "the owner denies"},
	} {
		ok, why := Policy{Jobs: 1, Allow: c.allow, Deny: c.deny}.Allows(job)
		if ok != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %v, %q", c.name, ok, why)
		}
	}
}

// Hosts that do not answer are replaced for a bounded time, whatever their number.
func TestBookingEnds(t *testing.T) {
	s, _ := submit(t, 2, 200, Config{Answer: 2 * time.Second, Book: 5 * time.Second})
	now := epoch
	for s.Phase() == Booking {
		now = s.Next()
		s.Tick(now)
	}
	var short *allocate.Shortage
	if now != epoch.Add(5*time.Second) || !errors.As(s.Err(), &short) {
		t.Errorf("it ends after %v: %v", now.Sub(epoch), s.Err())
	}
}
