//go:build system

package admin

import (
	"crypto/rand"
	"flag"
	"html"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// pagesDir is where a browser in TestStatusPage writes pictures of the pages; the script test/pages
// sets it.
var pagesDir = flag.String("pages", "", "folder for pictures of the status page, taken by chromium")

// A browser on the broker's host sees the sites, how they connect, and why.
func TestStatusPage(t *testing.T) {
	t.Parallel() // most of it is waiting
	const at = "127.0.0.1:9480"
	w := labtest.NewWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut+labtest.SiteHidden, grid.Config{
		Settings: map[string]map[string]any{
			"broker":  {"status_listen": at},
			"frontal": {"quota": map[string]any{"per_user": map[string]any{"rate": "1Gbit/s"}}},
			"proxy":   {"quota": map[string]any{"per_job": map[string]any{"rate": "16Mbit/s"}}},
		},
	})
	var sent sync.WaitGroup
	defer sent.Wait() // until the links have ended
	for _, way := range [][2]string{{"closed/n1", "open/n1"}, {"closed/n2", "shut/n1"}, {"shut/n1", "hidden/n1"}, {"hidden/n1", "closed/n1"}} {
		j := w.LinkPair(way[0], way[1])
		defer j.End(t)
		// Both ends of a limited link are shown the limit.
		for site, end := range map[string]*link.Link{way[0]: j.Near, way[1]: j.Far} {
			want := end.Path.Reason
			if j.Near.Path.Technique == overlay.Relay {
				want, _, _ = strings.Cut(want, "; ")
				if site == "hidden/n1" {
					want += "; held to 1Gbit/s by quota.per_user.rate of the gateway of hidden"
				}
				want += "; held to 16Mbit/s by quota.per_job.rate of proxy p1"
			}
			if end.Path.Reason != want {
				t.Errorf("the end at %s: %q, want %q", site, end.Path.Reason, want)
			}
		}
		if way[0] == "closed/n2" { // a relayed link sends all that it is let
			sent.Go(func() { io.Copy(j.Near.Conn, rand.Reader) })
			sent.Go(func() { io.Copy(io.Discard, j.Far.Conn) })
		}
	}
	w.Until("the broker was told of four pairs", func() bool { return len(w.Figure("broker", "outcomes").([]any)) >= 4 })
	const rule = "quota.per_job.rate 16Mbit/s at proxy p1"
	page := ""
	w.Until("the pages tell of traffic and of what holds it back", func() bool {
		page = w.Fetch("broker", "http://"+at+"/")
		return strings.Contains(w.Fetch("broker", "http://"+at+"/pair?asker=hidden&target=closed"), "<td>frontal hidden</td>") && strings.Contains(page, "held back</text>") && strings.Contains(page, "Held back</strong> by "+rule) && strings.Contains(page, "direct: not counted here")
	})
	for _, want := range []string{"Grid of broker broker", ">closed</a>", ">direct</span>", ">relay</span>", "<b>4<small>/4</small></b> sites connected",
		">4 of 4 sites, 1 proxy</text>", ">proxy p1</text>", ">n2</text>", `class="host up"`, "<td>2 up</td>"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s on the page:\n%s", want, page)
		}
	}
	pair := w.Fetch("broker", "http://"+at+"/pair?asker=closed&target=shut")
	for _, want := range []string{"closed to shut", "both sites can reach a proxy", "connected</span> in", "shut lets no connection in", "<td>proxy p1</td>", "quota.per_job.rate, 16Mbit/s"} {
		if !strings.Contains(pair, want) {
			t.Errorf("no %s on the pair's page:\n%s", want, pair)
		}
	}
	if *pagesDir == "" {
		return
	}
	for name, shot := range map[string][2]string{
		"status-wide": {"1280,1150", "/"}, "status-narrow": {"400,1300", "/"}, "status-pair": {"1280,1000", "/pair?asker=closed&target=shut"},
	} {
		takePicture(t, w, name, shot[0], "http://"+at+shot[1])
	}
	admin, err := w.Issue(control.Identity{Role: control.RoleAdmin, Name: "ada"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	broker := w.Daemon("broker").Host
	top := ""
	w.Until("all hosts to be listed", func() bool {
		cmd := broker.Command(w.Ctx, labtest.Program(t, ""), "top", "--once", "--helper", w.Socket("closed/n1"),
			"--broker", broker.Addr().String()+":443", "--cert", admin.Cert, "--tls-key", admin.Key, "--ca", admin.CA)
		out, err := cmd.Output()
		top = string(out)
		return err == nil && strings.Count(top, " up ") >= 6
	}, func() string { return top })
	takeTextPicture(t, w, "top", "1480,1030", "isthmus top", top)
}

// takePicture takes a picture of a page, as the broker's host sees it.
func takePicture(t *testing.T, w *labtest.World, name, size, url string) {
	t.Helper()
	cmd := w.Daemon("broker").Host.Command(w.Ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir="+t.TempDir(),
		"--window-size="+size, "--screenshot="+filepath.Join(*pagesDir, name+".png"), url)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", name, err, out)
	}
}

// takeTextPicture takes a picture of what a command has printed, as a terminal would show it.
func takeTextPicture(t *testing.T, w *labtest.World, name, size, command, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".html")
	page := `<meta charset="utf-8"><body style="margin: 0; background: #16181d"><pre style="margin: 16px; color: #d8dee9; font: 14px/1.25 monospace">$ ` +
		html.EscapeString(command+"\n"+text) + "</pre>"
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	takePicture(t, w, name, size, "file://"+file)
}
