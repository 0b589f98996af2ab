package broker

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The status page is plain HTML from a template, so that site names and error texts from untrusted
// peers are escaped in their context. It is read-only. It has no authentication, so only users of
// this host can open it unless the admin configures otherwise.

//go:embed page
var pageFiles embed.FS

var pageTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"ago":  func(t, now time.Time) string { return ago(now.Sub(t)) },
	"ms":   milliseconds,
	"bits": bitRate,
	"size": byteSize,
	"time": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
}).ParseFS(pageFiles, "page/*.html"))

// pageSecurity lets the page load only its own style and script, and forbids framing it.
const pageSecurity = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page returns the handler of the status page. Unless open is true, it answers only requests that
// name this host by a loopback name, so that a foreign page cannot read it by DNS rebinding.
func (b *Broker) page(open bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		b.render(w, "grid.html", b.grid(time.Now()))
	})
	mux.HandleFunc("GET /pair", func(w http.ResponseWriter, r *http.Request) {
		asker, target := overlay.SiteID(r.URL.Query().Get("asker")), overlay.SiteID(r.URL.Query().Get("target"))
		view, ok := viewPair(b.Status(), b.outcomes.latest(asker, target), asker, target, time.Now())
		if !ok {
			http.Error(w, "no such pair of sites is known to this broker; they are listed on the first page", http.StatusNotFound)
			return
		}
		b.render(w, "pair.html", view)
	})
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(b.Status())
	})
	files := http.StripPrefix("/", http.FileServerFS(pageFiles))
	mux.Handle("GET /page/style.css", files)
	mux.Handle("GET /page/refresh.js", files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !open && !ownName(r.Host) {
			http.Error(w, "this page is for this host only: use the address 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", pageSecurity)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// grid returns the first page's content.
func (b *Broker) grid(now time.Time) gridView {
	return viewGrid(b.Status(), func(site overlay.SiteID) []offer.Host { return b.hosts.bySite(site, now) }, now)
}

// ownName reports whether the host of a request is a loopback address or
// localhost.
func ownName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// render writes a whole page, or an error.
func (b *Broker) render(w http.ResponseWriter, name string, view any) {
	var text bytes.Buffer
	if err := pageTemplates.ExecuteTemplate(&text, name, view); err != nil {
		b.log.Error("status page", "page", name, slog.Any("error", err))
		http.Error(w, "the page cannot be made; the broker's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(text.Bytes())
}
