package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/matrix"
)

// matrixCommand is "isthmus-lab matrix": every kind of site to every other.
func matrixCommand() *cli.Command {
	return &cli.Command{
		Name:  "matrix",
		Usage: "connect every ordered pair of kinds of site, and compare the result with the broker's prediction and with the measurement",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "presets", Value: "plain", Usage: "`KINDS` of site, separated by commas; plain stands for all but no-route/, no-route for those, all for both, unforeseen for kinds without a profile, which need --measured"},
			&cli.StringFlag{Name: "pairs", Usage: "connect only `FROM:TO`, each a kind of site; several pairs are separated by commas"},
			&cli.BoolFlag{Name: "ipv6", Usage: "use IPv6 only, among the kinds of site that have it"},
			&cli.BoolFlag{Name: "dual-stack", Usage: "name the broker in place of its IPv4 address: beside kinds of site that have IPv6, it has both"},
			&cli.BoolFlag{Name: "measured", Usage: "do not declare the firewalls: every site measures its own; links may then move to a better path"},
			&cli.BoolFlag{Name: "unprivileged", Usage: "run helpers and frontals without CAP_NET_RAW"},
			&cli.DurationFlag{Name: "rtt", Value: 10 * time.Millisecond, Usage: "round-trip time between any two places"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object per pair"},
			&cli.PathFlag{Name: "html", Usage: "also write the grid as a page to `FILE`"},
		},
		Action: func(c *cli.Context) error {
			if err := roundTrip(c, "matrix", 0); err != nil {
				return err
			}
			presets, err := presetList(c.String("presets"))
			if err != nil {
				return cmdline.Usage("matrix: " + err.Error())
			}
			pairs, err := pairList(c.String("pairs"))
			if err != nil {
				return cmdline.Usage("matrix: " + err.Error())
			}
			all := slices.Clone(presets)
			for _, p := range pairs {
				all = append(all, p.From, p.To)
			}
			if i := slices.IndexFunc(all, undeclared); i >= 0 && !c.Bool("measured") {
				return cmdline.Usage(fmt.Sprintf("matrix: preset %q has no declared firewall; add --measured", all[i]))
			}
			if c.Bool("ipv6") && c.Bool("dual-stack") {
				return cmdline.Usage("matrix: --ipv6 has no broker with both versions of IP; leave out --dual-stack")
			}
			if c.Bool("ipv6") {
				if presets, err = havingIPv6(presets, pairs); err != nil {
					return cmdline.Usage("matrix: " + err.Error())
				}
			}
			program, err := enter()
			if err != nil {
				return err
			}
			return matrix.Run(c.Context, matrix.Options{
				Presets: presets, Pairs: pairs, RTT: c.Duration("rtt"), JSON: c.Bool("json"), HTML: c.Path("html"),
				Unprivileged: c.Bool("unprivileged"), IPv6: c.Bool("ipv6"), DualStack: c.Bool("dual-stack"), Measured: c.Bool("measured"),
				Binary:   suite(program),
				Confined: func(argv []string) []string { return program(append([]string{"unprivileged"}, argv[1:]...)...) },
				Out:      c.App.Writer, Err: os.Stderr,
			})
		},
	}
}

// havingIPv6 returns the presets that have IPv6. It is an error if there is none, or if a preset of
// a pair has no IPv6.
func havingIPv6(presets []string, pairs []matrix.Pair) ([]string, error) {
	for _, p := range pairs {
		for _, name := range []string{p.From, p.To} {
			if !matrix.HasIPv6(name) {
				return nil, fmt.Errorf("preset %q has a NAT and therefore no IPv6", name)
			}
		}
	}
	presets = slices.DeleteFunc(presets, func(p string) bool { return !matrix.HasIPv6(p) })
	if len(presets) == 0 {
		return nil, errors.New("none of these presets has IPv6: all have a NAT")
	}
	return presets, nil
}

// pairList returns the pairs of a list; "" is none.
func pairList(text string) ([]matrix.Pair, error) {
	if text == "" {
		return nil, nil
	}
	var pairs []matrix.Pair
	for word := range strings.SplitSeq(text, ",") {
		from, to, ok := strings.Cut(word, ":")
		if !ok {
			return nil, fmt.Errorf("pair %q: want FROM:TO", word)
		}
		for _, name := range []string{from, to} {
			if !slices.Contains(lab.Presets(), name) && !undeclared(name) {
				return nil, unknownPreset(name)
			}
		}
		pairs = append(pairs, matrix.Pair{From: from, To: to})
	}
	return pairs, nil
}

func unknownPreset(name string) error {
	return fmt.Errorf("unknown preset %q; known are %s, and all, plain, no-route, unforeseen", name, strings.Join(slices.Concat(lab.Presets(), lab.Unforeseen()), ", "))
}

// undeclared reports whether the preset has no profile.
func undeclared(name string) bool {
	return slices.Contains(lab.Unforeseen(), strings.TrimPrefix(name, "no-route/"))
}

// presetList returns the presets in a list of kinds and groups of kinds, each once.
func presetList(text string) ([]string, error) {
	var presets []string
	for word := range strings.SplitSeq(text, ",") {
		found := false
		for _, p := range lab.Presets() {
			hidden := strings.HasPrefix(p, "no-route/")
			if word != p && word != "all" && (word != "plain" || hidden) && (word != "no-route" || !hidden) {
				continue
			}
			found = true
			if !slices.Contains(presets, p) {
				presets = append(presets, p)
			}
		}
		for _, p := range lab.Unforeseen() {
			if word == "unforeseen" || strings.TrimPrefix(word, "no-route/") == p {
				found = true
				if name := strings.Replace(word, "unforeseen", p, 1); !slices.Contains(presets, name) {
					presets = append(presets, name)
				}
			}
		}
		if !found {
			return nil, unknownPreset(word)
		}
	}
	return presets, nil
}
