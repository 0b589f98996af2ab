package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Event says what a record is about.
type Event string

// The events. Those of the log itself are written by this package.
const (
	Decision  Event = "decision"   // two processes asked to be connected; Effect says what became of it
	LinkStart Event = "link-start" // a process got a connection to another
	LinkEnd   Event = "link-end"   // a connection is over that this daemon carried, or by OwnWord nobody; Sent and Received count
	Refusal   Event = "refusal"    // a caller was turned away: a bad ticket, an unknown certificate, another user
	Session   Event = "session"    // a daemon or an admin came, or left
	Process   Event = "process"    // a process of a job registered with its helper, or left
	JobStart  Event = "job-start"  // a job was started on this node
	JobEnd    Event = "job-end"    // ... and is over
	Enrolment Event = "enrolment"  // somebody asked for a certificate; Effect says what became of it, Rule by what
	Revoke    Event = "revoke"     // a certificate is not believed any more
	Settings  Event = "settings"   // settings or policy were read anew

	Start     Event = "start"     // the daemon began
	Stop      Event = "stop"      // the daemon ended in order
	File      Event = "file"      // the first record of each file
	Recovered Event = "recovered" // the file before ends in the middle of a line
	Lost      Event = "lost"      // Count records could not be written
)

// The effects of a decision.
const (
	Permitted = "permitted" // and done
	Refused   = "refused"   // by a rule
	Failed    = "failed"    // permitted, but it did not come about
)

// OwnWord is the Rule of a LinkEnd of a connection that no daemon carried: what it
// moved is what the processes at its ends say.
const OwnWord = "own-word"

// OwnWordReason is the Reason of such a record. The process was killed, and had said
// nothing of the link for the given time; 0 means that it said itself that the link
// was over.
func OwnWordReason(unsaid time.Duration) string {
	if unsaid == 0 {
		return "no daemon carried it: the bytes are what the process says"
	}
	return fmt.Sprintf("no daemon carried it, and the process was gone without a word: the bytes are at least these, which it said %v before", unsaid.Round(time.Millisecond))
}

// Record is one line of an audit log. Log fills in Seq, Time, Daemon and Prev.
// Texts are cut to maxText bytes, and what is not printable in them is
// escaped: they may come from strangers. Put no secret into any of them.
type Record struct {
	Seq    uint64    `json:"seq"`    // of the log, from 1
	Time   time.Time `json:"time"`   // UTC
	Daemon string    `json:"daemon"` // whose log it is, as "proxy p1"
	Event  Event     `json:"event"`
	Effect string    `json:"effect,omitempty"` // of a decision

	User      string   `json:"user,omitempty"`      // on whose behalf
	Project   string   `json:"project,omitempty"`   // likewise
	Job       string   `json:"job,omitempty"`       // its id
	Ranks     []uint32 `json:"ranks,omitempty"`     // of the two processes, the asker first
	Sites     []string `json:"sites,omitempty"`     // in the order of Ranks, as far as they are known
	Nodes     []string `json:"nodes,omitempty"`     // likewise
	Technique string   `json:"technique,omitempty"` // of the connection
	Relay     string   `json:"relay,omitempty"`     // the proxy's name
	Link      string   `json:"link,omitempty"`      // the connection's id, the same in every daemon's log
	Peer      string   `json:"peer,omitempty"`      // who called, as certificate or address

	Sent     uint64  `json:"sent,omitempty"`     // bytes from the first of Sites or Ranks to the second
	Received uint64  `json:"received,omitempty"` // bytes the other way
	Seconds  float64 `json:"seconds,omitempty"`  // that it lasted

	Rule   string `json:"rule,omitempty"`   // what decided: a policy's rule, the name of a check
	Reason string `json:"reason,omitempty"` // for people
	Count  uint64 `json:"count,omitempty"`  // how many this record stands for, when not one

	Prev string `json:"prev"` // SHA-256 of the line before, in hex, "" in the first of all
}

// Bounds of a record, so that nobody fills the log with one.
const (
	maxText  = 1024
	maxItems = 16
	maxLine  = 256 << 10 // far above what the others allow
)

// clean brings a record into the bounds.
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

// printables copies: the caller's slice is the caller's.
func printables(texts []string) []string {
	var out []string
	for _, s := range texts[:min(len(texts), maxItems)] {
		out = append(out, Printable(s))
	}
	return out
}

// Printable returns s, cut to maxText bytes, with everything in it that a
// terminal or a reader could take for something else as a Go escape: control
// characters, those that turn the direction of writing, bytes that are not
// UTF-8, and the backslash itself.
func Printable(s string) string {
	if len(s) > maxText {
		end := maxText
		for end > maxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "…"
	}
	for _, c := range []byte(s) {
		if c < ' ' || c == '\\' || c >= 0x7f {
			q := strconv.Quote(s)
			return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
		}
	}
	return s
}

// encode appends the record as a line, with its newline. The record is clean.
func (r *Record) encode(buf []byte) []byte {
	b := bytes.NewBuffer(buf)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		panic("audit: " + err.Error()) // every field has a JSON form; a Seconds that is not a number is a fault of ours
	}
	return b.Bytes()
}

// Parse reads one line, with or without its newline, strictly.
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

// hashOf is what the next line's Prev must be. The newline does not count.
func hashOf(line []byte) string {
	sum := sha256.Sum256(bytes.TrimSuffix(line, []byte("\n")))
	return hex.EncodeToString(sum[:])
}
