package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

// caRequestCommand is "isthmus ca request": a key, and a request for its certificate.
func caRequestCommand() *cli.Command {
	return &cli.Command{
		Name:  "request",
		Usage: "create a key here, and a request for its certificate",
		Description: "For a site whose keys must not leave it and that does not enrol at a broker. Send the request to the administrator of the grid's CA, who\n" +
			"signs it (isthmus ca sign); the key stays here. Tell the administrator the fingerprint through another channel, so that\n" +
			"the request cannot be replaced on the way. ROLE NAME is as for ca issue.",
		ArgsUsage: "ROLE NAME",
		Flags:     []cli.Flag{&cli.StringFlag{Name: "out", Value: ".", Usage: "`FOLDER` to write to"}},
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "ca request", 2); err != nil {
				return err
			}
			id, err := control.ParseIdentity(c.Args().Get(0) + " " + c.Args().Get(1))
			if err != nil {
				return cmdline.Usage("ca request: " + err.Error())
			}
			request, keyPEM, err := ca.Request(id)
			if err != nil {
				return err
			}
			_, pub, err := ca.ParseRequest(request)
			if err != nil {
				return err
			}
			fingerprint, err := ca.KeyFingerprint(pub)
			if err != nil {
				return err
			}
			out := c.String("out")
			if err := os.MkdirAll(out, 0o700); err != nil {
				return err
			}
			f := ca.FilesFor(out, id)
			// A second request must not overwrite a key whose certificate may be in use.
			key, err := os.OpenFile(f.Key, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return fmt.Errorf("%w; move the old key away first", err)
			}
			_, err = key.Write(keyPEM)
			if again := key.Close(); err == nil {
				err = again
			}
			if err != nil {
				return fmt.Errorf("%s: %w", f.Key, err)
			}
			csr := strings.TrimSuffix(f.Cert, ".pem") + ".csr"
			if err := os.WriteFile(csr, ca.RequestPEM(request), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "key: %s (keep it)\nrequest: %s (for isthmus ca sign)\nfingerprint: %s\n", f.Key, csr, fingerprint)
			return nil
		},
	}
}

// caSignCommand is "isthmus ca sign": a certificate for a key made elsewhere.
func caSignCommand(dir cli.Flag) *cli.Command {
	return &cli.Command{
		Name:  "sign",
		Usage: "sign a certificate request, for a key that was created elsewhere",
		Description: "REQUEST is a file, PEM, as isthmus ca request or another program makes it, or - for standard input, such as\n\n" +
			"  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout my.key -out my.csr -subj '/CN=frontal sitea'\n\n" +
			"It must name ROLE NAME, as for ca issue, and nothing else. It is refused for keys other than ECDSA of 256 bits or\n" +
			"more, for further names, and if it asks to be an authority. The certificate and the CA's are written to the folder --out.",
		ArgsUsage: "REQUEST ROLE NAME",
		Flags: []cli.Flag{dir,
			&cli.StringFlag{Name: "out", Value: ".", Usage: "`FOLDER` to write to"},
			&cli.StringFlag{Name: "fingerprint", Usage: "sign for this key only: the `SHA-256`, as isthmus ca request prints it"},
			&cli.StringFlag{Name: "project", Usage: "the projects of a user: `NAMES` separated by commas"},
			&cli.DurationFlag{Name: "valid", Value: 90 * 24 * time.Hour, Usage: "how long the certificate is valid, in hours: `TIME`", DefaultText: "90 days"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"}},
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "ca sign", 3); err != nil {
				return err
			}
			file := c.Args().First()
			id, projects, err := holder(c, "ca sign", c.Args().Get(1), c.Args().Get(2))
			if err != nil {
				return err
			}
			text, err := readSmall(file, 1<<20)
			if err != nil {
				return err
			}
			pub, err := ca.ReadRequest(text, id)
			if err != nil {
				return fmt.Errorf("ca sign: %s: %w", file, err)
			}
			fingerprint, err := ca.KeyFingerprint(pub)
			if err != nil {
				return err
			}
			if want := c.String("fingerprint"); want != "" && !strings.EqualFold(strings.ReplaceAll(want, ":", ""), fingerprint) {
				return fmt.Errorf("ca sign: %s: its key has the fingerprint %s, not %s: this is a different request", file, fingerprint, want)
			}
			authority, err := ca.Load(c.String("dir"))
			if err != nil {
				return err
			}
			notAfter := time.Now().Add(c.Duration("valid"))
			cert, err := authority.Sign(pub, id, notAfter, projects...)
			if err != nil {
				return fmt.Errorf("ca sign: %s: %w", file, err)
			}
			out := c.String("out")
			if err := os.MkdirAll(out, 0o700); err != nil {
				return err
			}
			f := ca.FilesFor(out, id)
			if err := control.WriteFile(f.Cert, cert, 0o644); err != nil {
				return err
			}
			// In the CA's own folder it exists already, and is not touched.
			if same, err := sameFolder(out, c.String("dir")); err != nil {
				return err
			} else if !same {
				if err := control.WriteFile(f.CA, authority.CertPEM(), 0o644); err != nil {
					return err
				}
			}
			if c.Bool("json") {
				return json.NewEncoder(c.App.Writer).Encode(struct {
					For         string    `json:"for"`
					Projects    []string  `json:"projects,omitempty"`
					Fingerprint string    `json:"fingerprint"`
					Expires     time.Time `json:"expires"`
					Cert        string    `json:"cert"`
					CA          string    `json:"ca"`
				}{id.String(), projects, fingerprint, notAfter.UTC().Truncate(time.Second), f.Cert, f.CA})
			}
			fmt.Fprintf(c.App.Writer, "signed for %v until %s\n", id, notAfter.UTC().Format(time.RFC3339))
			if len(projects) > 0 {
				fmt.Fprintf(c.App.Writer, "projects: %s\n", strings.Join(projects, ", "))
			}
			fmt.Fprintf(c.App.Writer, "fingerprint of the key: %s\ncert: %s\nca: %s\n", fingerprint, f.Cert, f.CA)
			return nil
		},
	}
}

// readSmall reads a file, or standard input for "-", of at most most bytes.
func readSmall(file string, most int64) ([]byte, error) {
	in := os.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: it has more than %d bytes", file, most)
	}
	return text, nil
}

func sameFolder(a, b string) (bool, error) {
	one, err := filepath.Abs(a)
	if err != nil {
		return false, err
	}
	other, err := filepath.Abs(b)
	return one == other, err
}
