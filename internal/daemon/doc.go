// Package daemon is what the main functions of Isthmus's daemons share: settings, flags, logging,
// and the life of a process from start to clean end.
//
// A daemon describes its settings as one Go struct. From that struct come the strict YAML file, a
// flag and an environment variable for every key, the commented sample that --print-config writes,
// and the checks behind --check:
//
//	type Config struct {
//		Listen netip.AddrPort  `yaml:"listen" default:"[::]:443" help:"Address to accept helpers on."`
//		TLS    TLS             `yaml:"tls" help:"Certificate, key and CA of this daemon."`
//		Idle   time.Duration   `yaml:"idle" default:"30s" min:"1s" help:"Silence after which a session ends."`
//		Buffer daemon.Size     `yaml:"buffer" default:"4MiB" max:"1GiB" help:"Memory for one link."`
//		Choice string          `yaml:"choice" default:"load" enum:"load,turn" help:"How to pick a proxy."`
//	}
//	type TLS struct {
//		Cert daemon.Path `yaml:"cert" required:"true" path:"file" example:"/etc/isthmus/broker.crt" help:"..."`
//	}
//
//	func main() {
//		daemon.Main(daemon.Spec[Config]{Name: "isthmus-broker", Usage: "...", Serve: serve})
//	}
//
// The key tls.cert is the flag --tls-cert and, for isthmus-broker, the environment variable
// ISTHMUS_BROKER_TLS_CERT. A flag overrides the environment, the environment the file, and the file
// the default.
//
// # Tags
//
//	yaml      the key; ",inline" lifts a struct's keys one level up; "-" hides a field
//	help      what the key means, in sentences; every key has one
//	default   the value when none is given, written as on the command line
//	example   a value for the sample when there is no default
//	enum      the allowed words, separated by commas
//	min, max  inclusive bounds of a number, a duration or a Size
//	required  "true": zero is not a value
//	path      "file" or "dir": a [Path] that must exist and be readable when set
//
// # Types
//
// Strings, bools, integers, floats, [time.Duration], [Size], [Path], anything with UnmarshalText
// and MarshalText (netip.AddrPort, netip.Prefix), structs, slices and maps from strings. On the
// command line and in the environment a list of plain values is separated by commas, and a flag may
// be repeated; a list of structs and a map are given as YAML text in one argument.
//
// A struct anywhere in the settings may have a method Check() error, which validates keys against
// each other; [Wrong] names the key at fault. Check must not open sockets or change anything:
// --check runs it, on any machine. Likewise a method CheckFiles() error, which runs after all of Check
// where the settings have no other faults, validates what is in the files that they name: at the start,
// for --check, and for isthmus check, on any machine. It leaves out files that it cannot read.
//
// A broken description (a key without help, an unsupported type, a default that does not parse) is
// an error in the program, not its user's: [Command] panics with the field's name. One test that
// calls [Sample] finds them all.
//
// # Sockets
//
// [Socket] opens what the daemon listens on, unless the service manager did (sd_listen_fds(3)) or a
// predecessor has it. Through the admin socket an admin on the host makes the daemon drain and
// follows its progress ([Drain]).
//
// The package knows nothing of sites, links or jobs. It keeps no state beyond one call of [Main] or
// of a [Command]'s action; signals are caught only while Serve runs.
package daemon
