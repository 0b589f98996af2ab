package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/launch/starter"
	"github.com/isthmus-grid/isthmus/proxy"
)

// A fileKind is a kind of file that users write for the suite.
type fileKind struct {
	name  string   // for --as
	keys  []string // at the top of such a file
	check func(file string, text []byte) []cmdline.Finding
}

func fileKinds() []fileKind {
	return []fileKind{
		{"broker", daemon.Keys[broker.Config](), checkSettings[broker.Config]},
		{"frontal", daemon.Keys[frontal.Config](), checkSettings[frontal.Config]},
		{"proxy", daemon.Keys[proxy.Config](), checkSettings[proxy.Config]},
		{"helper", daemon.Keys[connhelper.Config](), checkSettings[connhelper.Config]},
		{"starter", daemon.Keys[starter.Config](), checkSettings[starter.Config]},
		{"policy", []string{"mode", "contact", "zone", "rules"}, checkPolicy},
		{"lab", []string{"ipv6", "wan", "sites"}, checkLab},
		{"socket", nil, checkSocketUnit},
	}
}

// checkCommand is "isthmus check".
func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "find mistakes in settings, policies and systemd socket units",
		ArgsUsage: "FILE...",
		Description: "Each line names file, line and key, the mistake and the permitted values. The kind of file is\n" +
			"recognized by its keys, or by the suffix .socket. Nothing is changed and no daemon is contacted; settings that name files missing on this\n" +
			"machine cause a warning. A note says what the settings deny, and the line that would permit it. The status is 0\n" +
			"without errors and warnings (notes do not count), 1 with warnings, and 2 with errors.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "as", Usage: "what the files are: `KIND` is one of " + kindNames()},
			&cli.BoolFlag{Name: "json", Usage: "print one object for each file, with its findings"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cmdline.Usage("check: want FILE...")
			}
			for _, word := range c.Args().Slice() {
				if len(word) > 1 && word[0] == '-' {
					return cmdline.Words(c, "check", 0)
				}
			}
			kinds := fileKinds()
			if c.IsSet("as") {
				i := slices.IndexFunc(kinds, func(k fileKind) bool { return k.name == c.String("as") })
				if i < 0 {
					return cmdline.Usage(fmt.Sprintf("check: --as %s: want one of %s", c.String("as"), kindNames()))
				}
				kinds = kinds[i : i+1]
			}
			status := 0
			for _, file := range c.Args().Slice() {
				status = max(status, checkOne(c.App.Writer, kinds, file, c.Bool("json")))
			}
			if status == 0 {
				return nil
			}
			return cli.Exit("", status)
		},
	}
}

func kindNames() string {
	var names []string
	for _, k := range fileKinds() {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// checkOne checks one file, prints the findings, and returns the exit status for it. A single kind
// is assumed; among several the file's keys decide.
func checkOne(w io.Writer, kinds []fileKind, file string, asJSON bool) int {
	kind, found := fileKind{}, []cmdline.Finding{}
	text, err := readBounded(file)
	if err == nil {
		if kind, err = kindOf(kinds, file, text); err == nil {
			found = append(found, kind.check(file, text)...)
		}
	}
	if err != nil {
		found = append(found, cmdline.Finding{Severity: cmdline.Severe, File: file, Text: err.Error()})
	}
	return cmdline.PrintFindings(w, file, kind.name, found, asJSON)
}

// maxChecked is the maximum size of a file to be checked.
const maxChecked = 4 << 20

func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, errors.Unwrap(err) // the file name is already in the finding
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxChecked+1))
	if err == nil && len(text) > maxChecked {
		err = fmt.Errorf("more than %v", daemon.Size(maxChecked))
	}
	return text, err
}

// kindOf determines the kind of a file from its keys: the kind with most of them, or, of several
// such kinds, the one in the file's name.
func kindOf(kinds []fileKind, file string, text []byte) (fileKind, error) {
	if len(kinds) == 1 {
		return kinds[0], nil
	}
	if filepath.Ext(file) == socketUnit {
		return kinds[slices.IndexFunc(kinds, func(k fileKind) bool { return k.name == "socket" })], nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fileKind{}, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var keys []string
	if len(doc.Content) > 0 && doc.Content[0].Kind == yaml.MappingNode {
		for i := 0; i < len(doc.Content[0].Content); i += 2 {
			keys = append(keys, doc.Content[0].Content[i].Value)
		}
	}
	best, most := []fileKind(nil), 0
	for _, k := range kinds {
		known := 0
		for _, key := range keys {
			if slices.Contains(k.keys, key) {
				known++
			}
		}
		switch {
		case known > most:
			best, most = []fileKind{k}, known
		case known == most:
			best = append(best, k)
		}
	}
	for _, k := range best {
		if len(best) == 1 || strings.HasPrefix(filepath.Base(file), k.name) {
			return k, nil
		}
	}
	return fileKind{}, fmt.Errorf("cannot tell from its keys which kind of file it is; name the kind with --as: %s", kindNames())
}

// checkSettings checks the settings of a daemon.
func checkSettings[C any](file string, text []byte) []cmdline.Finding {
	faults, absent, advice := daemon.Examine[C](file, text)
	return slices.Concat(cmdline.Findings(file, cmdline.Severe, faults), cmdline.Findings(file, cmdline.Minor, absent), cmdline.Findings(file, cmdline.Noted, advice))
}

func checkPolicy(file string, text []byte) []cmdline.Finding {
	_, faults, doubts := policy.Examine(file, text)
	return append(cmdline.Findings(file, cmdline.Severe, faults), cmdline.Findings(file, cmdline.Minor, doubts)...)
}

// checkLab says which command checks such a file: this program does not include the lab.
func checkLab(file string, _ []byte) []cmdline.Finding {
	return []cmdline.Finding{{Severity: cmdline.Severe, File: file, Text: "this describes the sites of a laboratory; check it with: isthmus-lab check " + file}}
}
