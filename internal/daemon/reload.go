package daemon

import (
	"fmt"
	"log/slog"
	"reflect"
)

// alwaysLive are the common keys that take effect without a restart.
var alwaysLive = []string{"log.level", "shutdown_grace", "drain_grace"}

// change is a key whose value in the file differs from the one in effect.
type change struct {
	key      string
	was, is  string
	old, new reflect.Value // the key's value inside the settings
	live     bool
}

// changes lists the differences between the settings in effect and next, both of the type that root
// describes, by key.
func changes(root *field, effective, next reflect.Value, live func(key string) bool) (all []change) {
	olds := map[string]reflect.Value{}
	root.leaves(effective, func(f *field, v reflect.Value) { olds[f.key] = v })
	root.leaves(next, func(f *field, v reflect.Value) {
		old := olds[f.key]
		if reflect.DeepEqual(old.Interface(), v.Interface()) {
			return
		}
		all = append(all, change{f.key, f.yamlValue(old), f.yamlValue(v), old, v, live(f.key)})
	})
	return all
}

// reloader reloads a daemon's settings.
type reloader[C any] struct {
	root      *field
	read      func() (whole[C], error)
	effective *whole[C] // with what has taken effect
	hooks     *Hooks
	log       *slog.Logger
	level     *slog.LevelVar
	bounds    func(Common) // applies the new grace times
}

// reload puts what it can of the new settings into effect, and reports for each changed key whether
// it did. If anything is wrong with them, nothing changes.
func (r *reloader[C]) reload() error {
	next, err := r.read()
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	apply, err := r.hooks.prepare(next.Own)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	diff := changes(r.root, reflect.ValueOf(r.effective).Elem(), reflect.ValueOf(&next).Elem(), func(key string) bool {
		return covers(alwaysLive, key) || r.hooks.live(key)
	})
	apply()
	waiting := 0
	for i := range diff {
		if diff[i].live {
			diff[i].old.Set(diff[i].new)
		}
	}
	mustLevel(r.level, r.effective.Common.Log.Level)
	r.bounds(r.effective.Common)
	for _, c := range diff {
		effect := "now"
		if !c.live {
			effect = "after a restart"
			waiting++
		}
		r.log.Info("setting changed", "key", c.key, "was", c.was, "is", c.is, "takes_effect", effect)
		r.hooks.announce(Change{c.key, c.was, c.is, c.live})
	}
	r.log.Info("settings read again", "changed", len(diff), "after_restart", waiting)
	return nil
}
