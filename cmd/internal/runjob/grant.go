package runjob

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/grant"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
)

// grantLife is the default validity of a grant.
const grantLife = 12 * time.Hour

// wish describes the grant that a user requests.
type wish struct {
	cert, key string // files of the user's certificate and its key
	project   string // empty: the only one that the certificate names, if so
	valid     time.Duration
	validSet  bool // valid was given; else the grant may end earlier, with its certificate
}

// granted returns the grant for a job, in the form for the environment.
func (w wish) granted(job overlay.JobID, now time.Time) (string, error) {
	pair, err := tls.LoadX509KeyPair(w.cert, w.key)
	if err != nil {
		return "", fmt.Errorf("the user's certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return "", fmt.Errorf("%s: %w", w.cert, err)
	}
	id, err := control.IdentityOf(leaf)
	if err != nil {
		return "", fmt.Errorf("%s: %w", w.cert, err)
	}
	if id.Role != control.RoleUser {
		return "", fmt.Errorf("%s is the certificate of %v; a grant needs a user's certificate (isthmus ca issue user NAME)", w.cert, id)
	}
	projects, err := control.ProjectsOf(leaf)
	if err != nil {
		return "", fmt.Errorf("%s: %w", w.cert, err)
	}
	project := w.project
	switch {
	case project == "" && len(projects) == 1:
		project = projects[0]
	case project != "" && !slices.Contains(projects, project):
		return "", fmt.Errorf("%s: the certificate of %v does not name project %s; it names %q", w.cert, id, project, projects)
	}
	ends := now.Add(w.valid)
	if ends.After(leaf.NotAfter) {
		if w.validSet || !now.Before(leaf.NotAfter) {
			return "", fmt.Errorf("%s: the certificate expires at %s, before the grant would; ask for a shorter grant or get a new certificate", w.cert, leaf.NotAfter.UTC().Format(time.RFC3339))
		}
		ends = leaf.NotAfter
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return "", fmt.Errorf("%s: a key of type %T cannot sign", w.key, pair.PrivateKey)
	}
	b, err := grant.Issue(grant.Claims{Job: job, Project: project, Issued: now, Expires: ends}, pair.Certificate, signer)
	if err != nil {
		return "", err
	}
	return grant.Text(b), nil
}

// jobGrantCommand is "isthmus job grant".
func jobGrantCommand() *cli.Command {
	return &cli.Command{
		Name:  "grant",
		Usage: "print a grant: a signed statement that a job runs on behalf of a user",
		Description: "JOB is a FILE with the job's key, or the job's id. The processes of the job carry the grant in their environment:\n\n" +
			"  export " + grant.Env + "=$(isthmus job grant --cert alice.pem --tls-key alice.key --project climate myjob.key)\n" +
			"  isthmus run --key myjob.key --size 8 --ranks 0-3 ./program\n\n" +
			"A grant is valid for that job only and is useless without the job's key. `isthmus run` creates one automatically; see its --user-cert.",
		ArgsUsage: "JOB",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "cert", Usage: "`FILE` with the user's certificate (isthmus ca issue user NAME)", DefaultText: "user.pem in the user's folder for settings"},
			&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with its key", DefaultText: "user.key beside it"},
			&cli.StringFlag{Name: "project", Usage: "`NAME` of the project that the job runs for, one that the certificate names", DefaultText: "the certificate's, if it names one"},
			&cli.DurationFlag{Name: "valid", Value: grantLife, Usage: "`HOW-LONG` the grant is valid; afterwards the job gets no new links"},
		},
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "job grant", 1); err != nil {
				return err
			}
			w, err := wishOf(c, "cert", "tls-key", "valid")
			if err != nil {
				return err
			}
			if w == nil {
				return cmdline.Usage("job grant: give --cert and --tls-key: a grant is signed with a user's certificate (isthmus ca issue user NAME)")
			}
			job := overlay.JobID(c.Args().First())
			if overlay.CheckJobID(job) != nil {
				key, err := jobkey.Load(c.Args().First())
				if err != nil {
					return fmt.Errorf("job grant: want the file of a job's key, or a job's id: %w", err)
				}
				job = key.ID()
			}
			text, err := w.granted(job, time.Now())
			if err != nil {
				return fmt.Errorf("job grant: %w", err)
			}
			fmt.Fprintln(c.App.Writer, text)
			return nil
		},
	}
}

// grantFlags are those of "isthmus run" that say for which user the job works.
func grantFlags() []cli.Flag {
	const category = "for whom"
	return []cli.Flag{
		&cli.StringFlag{Category: category, Name: "user-cert", Usage: "`FILE` with your certificate as a user of the grid; the job runs on your behalf", DefaultText: "user.pem in your folder for settings, if it is there"},
		&cli.StringFlag{Category: category, Name: "user-key", Usage: "`FILE` with its key", DefaultText: "user.key beside it"},
		&cli.StringFlag{Category: category, Name: "project", Usage: "`NAME` of the project that the job runs for, one that your certificate names", DefaultText: "the certificate's, if it names one"},
		&cli.DurationFlag{Category: category, Name: "valid", Value: grantLife, Usage: "`HOW-LONG` the job may run on your behalf; afterwards it gets no new links"},
	}
}

// UserFiles returns the default location of a user's certificate.
func UserFiles() (ca.Files, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ca.Files{}, err
	}
	dir = filepath.Join(dir, "isthmus")
	return ca.Files{Cert: filepath.Join(dir, "user.pem"), Key: filepath.Join(dir, "user.key"), CA: filepath.Join(dir, ca.CertFile)}, nil
}

// wishOf reads flags of the given names. It returns nil if neither they nor the user's folder name
// a certificate.
func wishOf(c *cli.Context, cert, key, valid string) (*wish, error) {
	w := &wish{cert: c.String(cert), key: c.String(key), project: c.String("project"), valid: c.Duration(valid), validSet: c.IsSet(valid)}
	what := "run"
	if c.Command.Name != what {
		what = "job " + c.Command.Name
	}
	if w.valid <= 0 || w.valid > grant.MaxLife {
		return nil, cmdline.Usage(fmt.Sprintf("%s: --%s %v: want more than 0 and at most %v", what, valid, w.valid, grant.MaxLife))
	}
	if (w.cert == "") != (w.key == "") {
		return nil, cmdline.Usage(fmt.Sprintf("%s: give both --%s and --%s, or neither", what, cert, key))
	}
	if w.cert != "" {
		return w, nil
	}
	if own, err := UserFiles(); err == nil {
		w.cert, w.key = own.Cert, own.Key
		if _, err := os.Stat(w.cert); err == nil {
			return w, nil
		}
	}
	if w.project != "" || w.validSet {
		return nil, cmdline.Usage(fmt.Sprintf("%s: --project and --%s apply to a grant, which needs a user's certificate: give --%s and --%s", what, valid, cert, key))
	}
	return nil, nil
}

// grantFor returns the variables by which a job of "isthmus run" works for its user: none without a
// certificate.
func grantFor(c *cli.Context, key jobkey.Key) ([]string, error) {
	w, err := wishOf(c, "user-cert", "user-key", "valid")
	if w == nil || err != nil {
		return nil, err
	}
	text, err := w.granted(key.ID(), time.Now())
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return []string{grant.Env + "=" + text}, nil
}
