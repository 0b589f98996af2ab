package daemon

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/urfave/cli/v2"
)

func flagName(key string) string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(key)
}

func envName(prefix, key string) string {
	return prefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// ownFlags are the flags that select an action rather than a setting.
type ownFlags struct {
	config      string
	check       bool
	printConfig bool
	version     bool
	readyFD     int
	readyFile   string
}

func (o *ownFlags) flags() []cli.Flag {
	const category = "What to do"
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Destination: &o.config, Category: category,
			Usage: "read the settings from `FILE`"},
		&cli.BoolFlag{Name: "check", Destination: &o.check, Category: category,
			Usage: "check the settings and end: status 0 without faults, 1 with"},
		&cli.BoolFlag{Name: "print-config", Destination: &o.printConfig, Category: category,
			Usage: "print the settings in effect as a commented file and end"},
		&cli.BoolFlag{Name: "version", Destination: &o.version, Category: category,
			Usage: "print the version and end"},
		&cli.IntFlag{Name: "ready-fd", Destination: &o.readyFD, Category: category, DefaultText: "none",
			Usage: "write the line \"ready\" to descriptor `N` once the daemon serves, then close it"},
		&cli.StringFlag{Name: "ready-file", Destination: &o.readyFile, Category: category,
			Usage: "create `FILE` with the line \"ready\" once the daemon serves, and remove it at the end"},
	}
}

// file returns the settings file to read: the flag's or the environment's.
func (o *ownFlags) file(program string) string {
	if o.config != "" {
		return o.config
	}
	return os.Getenv(envPrefix(program) + "CONFIG")
}

// keyFlags are the flags that mirror the keys. They only keep the text, so that an invalid value is
// reported like one in the file.
type keyFlags struct {
	keys   []*field
	values map[string]*flagText
	prefix string
}

func newKeyFlags(root *field, prefix string) *keyFlags {
	k := &keyFlags{values: map[string]*flagText{}, prefix: prefix}
	names := map[string]bool{}
	for _, f := range (&ownFlags{}).flags() {
		names[f.Names()[0]] = true
	}
	root.leaves(reflect.New(root.typ).Elem(), func(f *field, v reflect.Value) {
		if names[flagName(f.key)] {
			panic("daemon: two flags are called --" + flagName(f.key) + "; one is key " + f.key)
		}
		names[flagName(f.key)] = true
		k.keys = append(k.keys, f)
		k.values[f.key] = &flagText{bool: v.Kind() == reflect.Bool}
	})
	return k
}

func (k *keyFlags) flags() []cli.Flag {
	var flags []cli.Flag
	for _, f := range k.keys {
		flags = append(flags, &cli.GenericFlag{
			Name: flagName(f.key), Value: k.values[f.key], DefaultText: f.preset, Category: "Settings",
			Usage: fmt.Sprintf("%s [$%s]", f.help, envName(k.prefix, f.key)),
		})
	}
	return flags
}

// givenValues returns the values on the command line, by key.
func (k *keyFlags) givenValues() map[string][]string {
	given := map[string][]string{}
	for key, v := range k.values {
		given[key] = v.texts
	}
	return given
}

// flagText keeps a flag's texts. It implements cli.Generic.
type flagText struct {
	texts []string
	bool  bool // --flag alone means true
}

func (t *flagText) Set(text string) error { t.texts = append(t.texts, text); return nil }
func (t *flagText) String() string        { return strings.Join(t.texts, ",") }
func (t *flagText) IsBoolFlag() bool      { return t.bool }

// usageFault adds the nearest known flag to the flag package's error.
func usageFault(err error, flags []cli.Flag) error {
	if text, ok := UnknownFlag(err, flags); ok {
		return errors.New(text + " (--help lists them)")
	}
	return err
}
