//go:build system

package security

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// movesKey marks, in the environment, a process as a rank of moves: "ends", or "stays"
// until it is killed.
const movesKey = "ISTHMUS_TEST_MOVES"

// moved is how many bytes rank 0 of moves sends to rank 1.
const moved = 8 << 20

// most is above what a link counts for that.
const most = 3 * moved

// moves is a rank.
func moves() error {
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	data := make([]byte, moved)
	if err := mpilib.Bcast(ctx, w.Comm(), data, 0); err != nil {
		return err
	}
	fmt.Printf("%x\n", sha256.Sum256(data))
	if os.Getenv(movesKey) == "stays" {
		<-ctx.Done()
	}
	return w.Finalize(ctx)
}

// The bytes of a direct link between two processes pass no daemon. The processes report them to
// their helpers, and the audit log of each site has them, for the user on whose behalf they work;
// all logs together have them once. For a killed process the log has the link, and that its bytes
// are unknown.
func TestDirectLinksAreAudited(t *testing.T) {
	trails := t.TempDir()
	settings := map[string]map[string]any{}
	for _, kind := range []string{"broker", "proxy", "frontal", "helper"} {
		settings[kind] = map[string]any{"audit": map[string]any{"folder": filepath.Join(trails, kind)}}
	}
	settings["helper"]["metrics_listen"] = "127.0.0.1:9444"
	w := newWorld(t, labtest.SiteClosed+labtest.SiteOpen, grid.Config{Settings: settings})
	user := control.Identity{Role: control.RoleUser, Name: "alice"}
	alice, err := w.Issue(user, time.Now().Add(time.Hour), "climate")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	job := func(key jobkey.Key, what string) (ranks [2]*lab.Cmd) {
		now := time.Now()
		shown := grantOf(t, grant.Claims{Job: key.ID(), Project: "climate", Issued: now, Expires: now.Add(30 * time.Minute)}, alice.Cert, alice.Key)
		var lines [2]*bufio.Reader
		for i, node := range []string{"closed/n1", "open/n1"} {
			cmd := w.Lab.Host(node).Command(w.Ctx, self)
			cmd.Env = append(os.Environ(), movesKey+"="+what, mpilib.EnvHelper+"="+w.Socket(node), jobkey.EnvKey+"="+key.String(), grant.Env+"="+shown,
				fmt.Sprintf("%s=%d", mpilib.EnvRank, i), mpilib.EnvSize+"=2")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ranks[i], lines[i] = cmd, bufio.NewReader(out)
		}
		want := fmt.Sprintf("%x\n", sha256.Sum256(make([]byte, moved)))
		for i, out := range lines {
			if got, err := out.ReadString('\n'); got != want {
				t.Fatalf("rank %d wrote %q, %v", i, got, err)
			}
		}
		return ranks
	}
	end := func(key jobkey.Key, kind, daemon string) audit.Record {
		return labtest.AwaitAudit(t, w.Ctx, filepath.Join(trails, kind), daemon+" to know what the link moved", func(r *audit.Record) bool {
			return r.Event == audit.LinkEnd && r.Rule == audit.OwnWord && r.Job == string(key.ID()) && r.Daemon == daemon
		})
	}

	key := labtest.NewKey(t, "moves")
	for i, cmd := range job(key, "ends") {
		if err := cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	for _, who := range [][2]string{{"frontal", "frontal closed"}, {"helper", "helper closed/n1"}, {"frontal", "frontal open"}, {"helper", "helper open/n1"}} {
		r := end(key, who[0], who[1])
		there, back, sites := r.Sent, r.Received, []string{"closed", "open"}
		if strings.Contains(who[1], "open") {
			there, back, sites = back, there, []string{"open", "closed"}
		}
		// Headers add to it, as do the other end's acknowledgements; on a busy machine also data
		// that was sent twice because a carrier was given up. Which end dialled the latest one is
		// not known.
		if there < moved || there > most || back > most-moved || !slices.Equal(r.Sites, sites) || r.Technique != "direct" && r.Technique != "reversed" || r.Link == "" {
			t.Errorf("%s says %+v", who[1], r)
		}
		if who[0] == "frontal" && (r.User != "alice" || r.Project != "climate") {
			t.Errorf("%s says that %s of %s moved it", who[1], r.User, r.Project)
		}
	}
	argv := []string{"audit", "query", "--sum", "bytes", "--by", "job,sites", "--job", string(key.ID()), "--json"}
	for kind := range settings {
		argv = append(argv, filepath.Join(trails, kind))
	}
	out, complaint, status := labtest.Run(t, exec.Command(labtest.Program(t, ""), argv...))
	var sum audit.Group
	if err := json.Unmarshal([]byte(out), &sum); err != nil || status != 0 || sum.Records != 1 || sum.Bytes < moved || sum.Bytes > 2*most || sum.By["sites"] != "closed open" {
		t.Errorf("isthmus audit query: %d, %s%s, %v", status, out, complaint, err)
	}

	key = labtest.NewKey(t, "killed")
	ranks := job(key, "stays")
	for _, helper := range []string{"helper closed/n1", "helper open/n1"} { // until then it knows of no link
		w.Until(helper+" to hear of the link", func() bool { return w.Scrape(helper, "9444")["isthmus_helper_direct_links"] == "1" })
	}
	for _, cmd := range ranks {
		cmd.Process.Kill()
		cmd.Wait()
	}
	for _, who := range [][2]string{{"frontal", "frontal closed"}, {"helper", "helper open/n1"}} {
		if r := end(key, who[0], who[1]); !strings.Contains(r.Reason, "at least") || r.Sent+r.Received > 2*most {
			t.Errorf("of a killed process %s says %+v", who[1], r)
		}
	}
}
