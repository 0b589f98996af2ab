package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/support/bundle"
)

// versions returns the versions of this program and its modules.
func versions() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s/%s\n", daemon.Version("isthmus"), runtime.GOOS, runtime.GOARCH)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			fmt.Fprintf(&b, "%s %s\n", m.Path, m.Version)
		}
	}
	return b.String()
}

// systemFiles are facts about the kernel that change how links behave.
var systemFiles = []string{
	"/proc/sys/kernel/osrelease", "/proc/loadavg", "/proc/self/limits",
	"/proc/sys/net/ipv4/tcp_congestion_control", "/proc/sys/net/ipv4/tcp_available_congestion_control", "/proc/sys/net/ipv4/ip_local_port_range",
	"/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem", "/proc/sys/net/core/rmem_max", "/proc/sys/net/core/wmem_max", "/proc/sys/net/core/somaxconn",
	"/proc/sys/net/ipv4/tcp_mtu_probing", "/proc/sys/net/ipv4/tcp_syncookies", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/disable_ipv6",
	"/proc/sys/net/netfilter/nf_conntrack_max", "/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established",
	"/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/user/max_user_namespaces", "/proc/sys/fs/file-max", "/proc/sys/fs/file-nr",
	"/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max",
}

// systemFacts reads them; it ignores a file that does not exist.
func systemFacts() string {
	var b strings.Builder
	fmt.Fprintf(&b, "processors: %d\n", runtime.NumCPU())
	for _, prefix := range []string{"MemTotal", "MemAvailable", "SwapTotal"} {
		fmt.Fprint(&b, lineOf("/proc/meminfo", prefix))
	}
	for _, prefix := range []string{"CapEff", "Seccomp:", "NoNewPrivs"} {
		fmt.Fprint(&b, lineOf("/proc/self/status", prefix))
	}
	for _, file := range systemFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(file, "/proc/sys/"), "/")
		if lines := strings.TrimSpace(string(text)); strings.Contains(lines, "\n") {
			fmt.Fprintf(&b, "%s:\n%s\n", name, lines)
		} else {
			fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(strings.Fields(lines), " "))
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		fmt.Fprintf(&b, "interfaces: %v\n", err)
	}
	for _, l := range links { // their names may reveal their owner
		addrs, _ := l.Addrs()
		fmt.Fprintf(&b, "interface %d: mtu %d, %v, %d addresses:", l.Index, l.MTU, l.Flags, len(addrs))
		for _, a := range addrs {
			fmt.Fprintf(&b, " %v", a)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// lineOf returns the line of a file with a prefix.
func lineOf(file, prefix string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) {
			return strings.Join(strings.Fields(line), " ") + "\n"
		}
	}
	return ""
}

// firstPerson is the first user id of people (login.defs), and maxPeople the maximum number of them
// that are learned.
const (
	firstPerson = 1000
	maxPeople   = 10_000
)

// localNames returns the names of this host, its domain and its users, each with its class.
func localNames() (all [][2]string) {
	if name, err := os.Hostname(); err == nil {
		all = append(all, [2]string{bundle.Host, name})
	}
	for _, key := range []string{"USER", "LOGNAME", "SUDO_USER"} {
		all = append(all, [2]string{bundle.User, os.Getenv(key)})
	}
	if text, err := os.ReadFile("/etc/resolv.conf"); err == nil {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && (f[0] == "search" || f[0] == "domain") {
				for _, domain := range f[1:] {
					all = append(all, [2]string{bundle.Host, domain})
				}
			}
		}
	}
	if text, err := os.ReadFile("/etc/passwd"); err == nil {
		for line := range strings.Lines(string(text)) {
			f := strings.Split(line, ":")
			if len(f) < 7 || len(all) > maxPeople {
				continue
			}
			if id, err := strconv.Atoi(f[2]); err == nil && id >= firstPerson && id < 65534 {
				all = append(all, [2]string{bundle.User, f[0]})
			}
		}
	}
	return all
}

// certificate adds the parts of a daemon's certificate that are not names.
func (l *collector) certificate(s settingsOf) {
	text, err := readBounded(s.files.Cert)
	if err != nil {
		l.gap("certificate of the "+s.as, err)
		return
	}
	var b strings.Builder
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			fmt.Fprintf(&b, "certificate: %v\n", err)
			continue
		}
		key := fmt.Sprintf("%T", cert.PublicKey)
		switch k := cert.PublicKey.(type) {
		case *ecdsa.PublicKey:
			key = "ECDSA " + k.Curve.Params().Name
		case ed25519.PublicKey:
			key = "Ed25519"
		case *rsa.PublicKey:
			key = fmt.Sprintf("RSA %d", k.N.BitLen())
		}
		fmt.Fprintf(&b, "certificate: valid from %s to %s, %s, authority %v\n", cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339), key, cert.IsCA)
		l.mu.Lock()
		l.names = append(l.names, cert.Subject.CommonName, cert.Issuer.CommonName)
		l.names = append(l.names, cert.DNSNames...)
		l.mu.Unlock()
	}
	creds, err := control.LoadCredentials(s.files.Cert, s.files.Key, s.files.CA)
	if err != nil {
		fmt.Fprintf(&b, "not usable by the user who made this bundle: %v\n", err)
	} else {
		fmt.Fprintf(&b, "identity: %v\n", creds.Identity())
		l.mu.Lock()
		l.names = append(l.names, creds.Identity().String())
		l.mu.Unlock()
	}
	l.add("settings/"+s.as+"-certificate.txt", s.files.Cert, bundle.Plain, []byte(b.String()))
}

// page fetches a page of a daemon of this host.
func (l *collector) page(ctx context.Context, name string, at netip.AddrPort, path string, form bundle.Form) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	text, err := func() ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hostAddress(at).String()+path, nil)
		if err != nil {
			return nil, err
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy: it is this host
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, errors.New(resp.Status)
		}
		return io.ReadAll(io.LimitReader(resp.Body, bundle.MaxFile+1))
	}()
	if err != nil {
		l.gap(name, err)
		return
	}
	l.add(name, "http://"+hostAddress(at).String()+path, form, text)
}

// askStatus asks one daemon for its status.
func askStatus(ctx context.Context, creds *control.Credentials, role control.Role, addr string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	defer e.Close()
	s, err := e.Dial(ctx, control.DialConfig{Addr: addr, Role: role})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{})
	if err != nil {
		return nil, control.FromStatus(err)
	}
	return r.Json, nil
}

// logs collects the ends of the named log files, or of the journal of the daemons that have
// settings here.
func (l *collector) logs(ctx context.Context, all []settingsOf) {
	files := fullNames(l.c.StringSlice("log"))
	for i, file := range files {
		text, err := tail(file)
		if err != nil {
			l.gap("log "+file, err)
			continue
		}
		l.add(fmt.Sprintf("log/%d.log", i+1), file, bundle.Plain, text)
	}
	if len(files) > 0 {
		return
	}
	journal, err := exec.LookPath("journalctl")
	if err != nil {
		l.gap("logs", errors.New("there is no journalctl here; name the files with --log"))
		return
	}
	told := map[string]bool{}
	for _, s := range all {
		if told[s.kind] {
			continue
		}
		told[s.kind] = true
		ctx, cancel := context.WithTimeout(ctx, askTime)
		cmd := exec.CommandContext(ctx, journal, "--no-pager", "--quiet", "--output=cat", "--lines=2000", "--unit=isthmus-"+s.kind)
		cmd.WaitDelay = time.Second
		out := &lastBytes{}
		cmd.Stdout = out
		err := cmd.Run()
		cancel()
		switch {
		case err != nil:
			l.gap("journal of isthmus-"+s.kind, err)
		case len(out.kept) == 0:
			l.gap("journal of isthmus-"+s.kind, errors.New("it has nothing that this user may read"))
		default:
			l.add("log/"+s.kind+".log", "journal of isthmus-"+s.kind, bundle.Plain, fromLine(out.kept, out.cut))
		}
	}
}

// tail returns a file's last lines.
func tail(file string) ([]byte, error) {
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a file")
	}
	from := max(info.Size()-maxLog, 0)
	text := make([]byte, maxLog)
	n, err := f.ReadAt(text, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return fromLine(text[:n], from > 0), nil
}

// fromLine removes the rest of a line that was cut.
func fromLine(text []byte, cut bool) []byte {
	if i := bytes.IndexByte(text, '\n'); cut && i >= 0 {
		return text[i+1:]
	}
	return text
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	kept []byte // maxLog bytes at most
	cut  bool   // something before them was dropped
}

// Write implements io.Writer.
func (l *lastBytes) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p...)
	if len(l.kept) > maxLog {
		l.kept, l.cut = append([]byte(nil), l.kept[len(l.kept)-maxLog:]...), true
	}
	return len(p), nil
}
