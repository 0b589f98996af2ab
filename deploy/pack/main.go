// Command pack makes what Isthmus is installed from, out of this source: deb and rpm
// packages, a tarball of static programs, an OCI image for each daemon and one of the
// program that is all of them, a list of the modules in them (SBOM), and checksums of it all.
// With -key, packages and checksums are signed.
//
//	cd deploy/pack && go run . -o /tmp/packages
//
// It is a module of its own, so that what it needs is no part of what it packs. What the
// packages hold says packages.yaml.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// daemons are those that have a package and an image of their own.
var daemons = []string{"broker", "frontal", "proxy", "helper"}

// release is what is made from.
type release struct {
	top       string // of the source
	out       string // where the results go
	version   string // without a v
	arch      string // as Go calls it
	bin       string // the folder of the built programs, and of files made for packages
	timestamp time.Time
	key       *key // signs; nil: nothing is signed
	libraries bool // the libraries for C programs were made
}

func main() {
	out := flag.String("o", "packages", "`folder` for the results")
	version := flag.String("version", "", "`version` of all packages; without, from git")
	arch := flag.String("arch", "amd64", "`architectures`, as Go calls them, with commas between")
	keyFile := flag.String("key", "", "`file` with the OpenPGP key that signs packages and checksums; its passphrase, if it has one, is in $"+envPassphrase)
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "pack: %q is not a flag; see pack -help\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(*out, *version, strings.Split(*arch, ","), *keyFile); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(out, version string, archs []string, keyFile string) error {
	top, err := source()
	if err != nil {
		return err
	}
	var k *key
	if keyFile != "" {
		if k, err = readKey(keyFile); err != nil {
			return err
		}
	}
	v, timestamp, err := described(top)
	if err != nil && version == "" {
		return fmt.Errorf("%w: without git, say -version", err)
	}
	if version == "" {
		version = v
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var made []string
	for _, arch := range archs {
		r := &release{top: top, out: out, version: version, arch: arch, timestamp: timestamp, key: k}
		names, err := r.all()
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		made = append(made, names...)
	}
	names, err := writeSums(out, made, k, timestamp)
	if err != nil {
		return err
	}
	return say(out, names)
}

// all makes everything for one architecture, says what, and returns the names.
func (r *release) all() (made []string, err error) {
	if r.bin, err = os.MkdirTemp("", "isthmus-pack-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.bin)
	if err := r.build(); err != nil {
		return nil, err
	}
	for _, make := range []func() ([]string, error){r.packages, r.tarball, r.images, r.parts} {
		names, err := make()
		if err != nil {
			return nil, err
		}
		if err := say(r.out, names); err != nil {
			return nil, err
		}
		made = append(made, names...)
	}
	return made, nil
}

// say prints files that were made.
func say(dir string, names []string) error {
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Printf("%8.1f MB  %s\n", float64(info.Size())/1e6, filepath.Join(dir, name))
	}
	return nil
}

// source returns the top of the source that this folder is in.
func source() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	top := filepath.Dir(filepath.Dir(dir))
	if _, err := os.Stat(filepath.Join(top, "deploy", "pack", "packages.yaml")); err != nil {
		return "", fmt.Errorf("run it in the folder deploy/pack of the source: %w", err)
	}
	return top, nil
}

// described returns the version that git has for the source, and when its commit was made.
func described(top string) (version string, timestamp time.Time, err error) {
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", top}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	day, err := git("log", "-1", "--format=%cI")
	if err != nil {
		return "", time.Now(), err
	}
	if timestamp, err = time.Parse(time.RFC3339, day); err != nil {
		return "", time.Now(), err
	}
	if tag, err := git("describe", "--tags", "--exact-match"); err == nil {
		return strings.TrimPrefix(tag, "v"), timestamp, nil
	}
	commit, err := git("rev-parse", "--short=10", "HEAD")
	return fmt.Sprintf("0.0.0~%s.%s", timestamp.UTC().Format("20060102150405"), commit), timestamp, err
}

// build builds the programs, static and alike wherever that is done, has isthmus write
// its pages, and writes the scripts that differ from daemon to daemon.
func (r *release) build() error {
	args := []string{"build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w", "-o", r.bin + "/", "./cmd/isthmus-starter"}
	for _, program := range programs() { // not isthmus-lab, which no host of a grid needs
		args = append(args, "./cmd/"+program)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = r.top
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+r.arch)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w", cmd, err)
	}
	if err := r.writePages(); err != nil {
		return err
	}
	if err := r.buildLibraries(); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.top, "deploy/pack/remove.sh"))
	if err != nil {
		return err
	}
	for _, d := range daemons {
		own := strings.ReplaceAll(string(text), "DAEMON", "isthmus-"+d)
		if err := os.WriteFile(filepath.Join(r.bin, "remove-"+d+".sh"), []byte(own), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// librariesPackage has the libraries for C programs.
const librariesPackage = "isthmus-mpi"

// buildLibraries makes the libraries for C programs in the folder mpi, where there is a C compiler for
// the architecture; otherwise there will be no such package.
func (r *release) buildLibraries() error {
	if r.arch != runtime.GOARCH {
		fmt.Printf("            no %s for %s: it takes a C compiler for that\n", librariesPackage, r.arch)
		return nil
	}
	if _, err := exec.LookPath("cc"); err != nil {
		fmt.Printf("            no %s: there is no C compiler\n", librariesPackage)
		return nil
	}
	cmd := exec.Command("go", "run", "./cabi/make", filepath.Join(r.bin, "mpi"))
	cmd.Dir = r.top
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w", cmd, err)
	}
	r.libraries = true
	return nil
}

// pages are what isthmus prints of itself, by the file that each becomes.
var pages = map[string][]string{
	"isthmus.1":       {"man"},
	"completion.bash": {"completion", "bash"},
	"completion.zsh":  {"completion", "zsh"},
	"completion.fish": {"completion", "fish"},
}

// writePages has isthmus, built for this machine, print its pages.
func (r *release) writePages() error {
	for name, words := range pages {
		cmd := exec.Command("go", append([]string{"run", "-trimpath", "-ldflags=-s -w", "./cmd/isthmus"}, words...)...)
		cmd.Dir = r.top
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%v: %w", cmd, err)
		}
		if err := os.WriteFile(filepath.Join(r.bin, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
