package runjob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/internal/job/marks"
	"github.com/isthmus-grid/isthmus/internal/job/places"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// placeVariables describe a process's location, or belong to one job, so they are not passed on.
var placeVariables = []string{ranks.EnvRank, ranks.EnvSize, ranks.EnvFirst, ranks.EnvHelper, ranks.EnvDir, jobkey.EnvKey, jobkey.EnvKeyFD, grant.Env, jobgroups.Env, ranks.EnvReport,
	ranks.EnvReplica, ranks.EnvReplicas, ranks.EnvReplicaTable, ranks.EnvSendDeterministic, places.Env, ranks.EnvSpares, ranks.EnvReplacements, ranks.EnvProcess, marks.Env}

// environmentOf returns the part of an environment that processes get: what is requested, and what
// tunes the library.
func environmentOf(environ, asked, more []string) ([]string, error) {
	env := slices.Clone(more)
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "ISTHMUS_") && !slices.Contains(placeVariables, name) {
			env = append(env, v)
		}
	}
	for _, word := range asked {
		name, _, given := strings.Cut(word, "=")
		if name == "" {
			return nil, fmt.Errorf("%q: want NAME or NAME=VALUE", word)
		}
		if given {
			env = append(env, word)
			continue
		}
		i := slices.IndexFunc(environ, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		if i < 0 {
			return nil, fmt.Errorf("%s is not set here; give %s=VALUE", name, name)
		}
		env = append(env, environ[i])
	}
	return env, nil
}

// limitsOf parses limits: NAME=NUMBER, or NAME=unlimited.
func limitsOf(words []string) ([]*nodepb.Limit, error) {
	var all []*nodepb.Limit
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		l := &nodepb.Limit{Name: name, Value: ^uint64(0)}
		known := []string{"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"}
		var err error
		if value != "unlimited" {
			l.Value, err = strconv.ParseUint(value, 10, 64)
		}
		if err != nil || !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q: want NAME=NUMBER with one of the names %s", word, strings.Join(known, ", "))
		}
		all = append(all, l)
	}
	return all, nil
}
