package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/printable"
)

// Event is the subject of a record.
type Event string

// The events. This package writes those of the log itself.
const (
	Decision  Event = "decision"   // two processes asked to be connected; Effect has the result
	LinkStart Event = "link-start" // a process got a connection to another
	LinkEnd   Event = "link-end"   // end of a connection that this daemon carried, or, with OwnWord, that no daemon carried; has Sent and Received
	Refusal   Event = "refusal"    // a caller was turned away: a bad ticket, an unknown certificate, another user
	Session   Event = "session"    // a session of a daemon or an admin began or ended
	Process   Event = "process"    // a process of a job registered with its helper, or left
	JobStart  Event = "job-start"  // a job was started on this node
	JobEnd    Event = "job-end"    // the job is over
	Enrolment Event = "enrolment"  // a certificate was requested; Effect has the result, Rule what decided
	Revoke    Event = "revoke"     // a certificate was revoked
	Settings  Event = "settings"   // settings or policy were reloaded

	Start     Event = "start"     // the daemon started
	Stop      Event = "stop"      // the daemon ended cleanly
	File      Event = "file"      // the first record of each file
	Recovered Event = "recovered" // the previous file ends in the middle of a line
	Lost      Event = "lost"      // Count records could not be written
)

// The effects of a decision.
const (
	Permitted = "permitted" // and done
	Refused   = "refused"   // by a rule
	Failed    = "failed"    // permitted, but failed
)

// OwnWord is the Rule of a LinkEnd of a connection that no daemon carried.
const OwnWord = account.RuleOwnWord

// Record is one line of an audit log. Log fills in Seq, Time, Daemon and Prev. Texts are cut to
// maxText bytes, and unprintable characters in them are escaped: they may come from untrusted
// peers. Put no secret into any of them.
type Record struct {
	Seq    uint64    `json:"seq"`    // in the log, from 1
	Time   time.Time `json:"time"`   // UTC
	Daemon string    `json:"daemon"` // the log's daemon, as "proxy p1"
	Event  Event     `json:"event"`
	Effect string    `json:"effect,omitempty"` // of a decision

	User      string   `json:"user,omitempty"`      // on whose behalf
	Project   string   `json:"project,omitempty"`   // likewise
	Job       string   `json:"job,omitempty"`       // its id
	Ranks     []uint32 `json:"ranks,omitempty"`     // of the two processes, the asker first
	Sites     []string `json:"sites,omitempty"`     // in the order of Ranks, as far as known
	Nodes     []string `json:"nodes,omitempty"`     // likewise
	Technique string   `json:"technique,omitempty"` // of the connection
	Relay     string   `json:"relay,omitempty"`     // the proxy's name
	Link      string   `json:"link,omitempty"`      // the connection's id, the same in every daemon's log
	Peer      string   `json:"peer,omitempty"`      // the caller, as certificate or address

	Sent     uint64  `json:"sent,omitempty"`     // bytes from the first of Sites or Ranks to the second
	Received uint64  `json:"received,omitempty"` // bytes in the other direction
	Seconds  float64 `json:"seconds,omitempty"`  // duration

	Rule   string `json:"rule,omitempty"`   // what decided: a policy's rule, the name of a check
	Reason string `json:"reason,omitempty"` // for people
	Count  uint64 `json:"count,omitempty"`  // how many events this record stands for, if not one

	Prev string `json:"prev"` // SHA-256 of the previous line, in hex; "" in the first of all
}

// EndOf returns the record of a link's end.
func EndOf(e account.LinkEnded) Record {
	r := Record{
		Event: LinkEnd, User: e.Principal.User, Project: e.Principal.Project, Job: string(e.Job), Ranks: e.Ranks, Technique: e.Technique,
		Relay: e.Relay, Link: e.ID, Peer: e.Peer, Sent: e.Traffic.AToB, Received: e.Traffic.BToA, Seconds: e.Lasted.Seconds(),
		Rule: e.Rule, Reason: e.Reason, Count: e.Count,
	}
	for _, n := range e.Nodes {
		r.Sites = append(r.Sites, string(n.Site))
		if n.Name != "" {
			r.Nodes = append(r.Nodes, n.Name)
		}
	}
	return r
}

// Bounds of a record, so that no single record fills the log.
const (
	maxText  = 1024
	maxItems = 16
	maxLine  = 256 << 10 // far above what the other bounds permit
)

// clean brings a record within the bounds.
func (r *Record) clean() {
	for _, s := range []*string{
		&r.Daemon, &r.Effect, &r.User, &r.Project, &r.Job, &r.Technique, &r.Relay, &r.Link, &r.Peer, &r.Rule, &r.Reason,
	} {
		*s = Printable(*s)
	}
	r.Ranks = r.Ranks[:min(len(r.Ranks), maxItems)]
	r.Sites = printables(r.Sites)
	r.Nodes = printables(r.Nodes)
	if r.Seconds != r.Seconds || r.Seconds < 0 || r.Seconds > 1e15 {
		r.Seconds = 0 // JSON has no infinity, and a clock may have been set
	}
	r.Time = r.Time.UTC().Truncate(time.Microsecond)
}

// printables copies: it must not modify the caller's slice.
func printables(texts []string) []string {
	var out []string
	for _, s := range texts[:min(len(texts), maxItems)] {
		out = append(out, Printable(s))
	}
	return out
}

// Printable returns s, cut to maxText bytes, as printable.Line does, with the backslash itself escaped.
func Printable(s string) string {
	if len(s) > maxText {
		s = limit.Text(s, maxText) + "…"
	}
	return printable.Line(strings.ReplaceAll(s, `\`, `\\`))
}

// encode appends the record as a line, with its newline. The record must be clean.
func (r *Record) encode(buf []byte) []byte {
	b := bytes.NewBuffer(buf)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		panic("audit: " + err.Error()) // every field has a JSON form; a Seconds that is not a number is an error in this program
	}
	return b.Bytes()
}

// Parse parses one line, with or without its newline, strictly.
func Parse(line []byte) (Record, error) {
	var r Record
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("not a record: %w", err)
	}
	if rest := bytes.TrimRight(line[d.InputOffset():], "\n"); len(rest) > 0 {
		return r, fmt.Errorf("not a record: %d bytes follow it on its line", len(rest))
	}
	return r, nil
}

// hashOf returns the required Prev of the next line. The newline does not count.
func hashOf(line []byte) string {
	sum := sha256.Sum256(bytes.TrimSuffix(line, []byte("\n")))
	return hex.EncodeToString(sum[:])
}
