package demo

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// path describes the link's path.
func (r report) path() string {
	path := cmp.Or(r.Technique, "same node")
	if r.Proxy != "" {
		path += " through " + r.Proxy
	}
	if r.Via != "" {
		path += " via " + r.Via
	}
	if r.Cipher != "" {
		path += ", encrypted"
	}
	return path
}

// outcome returns what a program's output says, in a few words.
func outcome(output string) string {
	var trip, rate string
	verified, took := "", ""
	for line := range strings.Lines(output) {
		_, line, _ = strings.Cut(line, "] ")                        // the rank
		if f := strings.Fields(line); len(f) == 6 && f[2] == "us" { // bytes, median, least, MB/s
			if us, err := strconv.ParseFloat(f[1], 64); err == nil && trip == "" {
				trip = fmt.Sprintf("%.1f ms round trip", us/1e3)
			}
			rate = f[5] + " MB/s with " + f[0] + " bytes"
		}
		name, value, _ := strings.Cut(line, "=")
		switch strings.TrimSpace(name) {
		case "Verification":
			verified = "verification " + strings.ToLower(strings.TrimSpace(value))
		case "Time in seconds":
			took = strings.TrimSpace(value) + " s"
		}
	}
	if trip != "" {
		return trip + ", " + rate
	}
	return verified + ", " + took
}

// draw returns a picture of two sites and the paths of the links between them.
func draw(all []report) (lines []string) {
	between, reasons, inside := map[string]int{}, map[string]string{}, map[string]map[string]int{}
	rtt := map[string]float64{}
	for _, r := range all {
		if !r.Dialled {
			continue
		}
		if r.crossesSites() {
			between[r.path()]++
			reasons[r.path()] = r.Reason
			rtt[r.path()] = max(rtt[r.path()], r.RTTMS)
			continue
		}
		site := filepath.Clean(siteOf(nodeOf(r.Rank)))
		if inside[site] == nil {
			inside[site] = map[string]int{}
		}
		inside[site][r.path()]++
	}
	var paths []string
	for _, path := range most(between) {
		paths = append(paths, fmt.Sprintf(" %s: %s, %.1f ms ", links(between[path]), path, rtt[path]))
	}
	left, right := box("alpha"), box("beta")
	lines = append(lines, join(left, right, paths)...)
	for _, site := range []string{"alpha", "beta"} {
		var parts []string
		for _, path := range most(inside[site]) {
			parts = append(parts, fmt.Sprintf("%s %s", links(inside[site][path]), path))
		}
		lines = append(lines, fmt.Sprintf("  inside %s: %s", site, strings.Join(parts, ", ")))
	}
	var why []string
	for _, path := range most(between) {
		if !slices.Contains(why, reasons[path]) {
			why = append(why, reasons[path])
		}
	}
	for _, reason := range why {
		lines = append(lines, "  because "+reason)
	}
	return append(lines, "  (ms is the longest round trip of these links)")
}

func links(n int) string {
	if n == 1 {
		return "1 link"
	}
	return fmt.Sprintf("%d links", n)
}

// most returns the names by falling count.
func most(counts map[string]int) []string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	return names
}

// box returns the lines of a site and its nodes.
func box(site string) []string {
	const width = 9
	lines := []string{"┌ " + site + " " + strings.Repeat("─", width-2-len(site)) + "┐"}
	for _, node := range nodes {
		if filepath.Clean(siteOf(node)) == site {
			_, name := filepath.Split(node)
			lines = append(lines, fmt.Sprintf("│ %-*s│", width-1, name))
		}
	}
	return append(lines, "└"+strings.Repeat("─", width)+"┘")
}

// join puts two boxes side by side with paths between the lines of their nodes.
func join(left, right, paths []string) (lines []string) {
	width := 0
	for _, p := range paths {
		width = max(width, utf8.RuneCountInString(p)+6)
	}
	blank := func(s []string) string { // a line that makes a box higher
		return "│" + strings.Repeat(" ", utf8.RuneCountInString(s[0])-2) + "│"
	}
	for len(left) < len(paths)+2 {
		left = slices.Insert(left, len(left)-1, blank(left))
	}
	for len(right) < len(left) {
		right = slices.Insert(right, len(right)-1, blank(right))
	}
	for i := range left {
		middle := strings.Repeat(" ", width)
		if i > 0 && i <= len(paths) {
			rest := width - utf8.RuneCountInString(paths[i-1])
			middle = strings.Repeat("═", rest/2) + paths[i-1] + strings.Repeat("═", rest-rest/2)
		}
		lines = append(lines, "  "+left[i]+middle+right[i])
	}
	return lines
}
