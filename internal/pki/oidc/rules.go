// Package oidc verifies tokens of an identity provider outside the grid: ID tokens of OpenID
// Connect, and tokens of the WLCG and SciTokens profiles, all of them JSON Web Tokens. It returns
// the user of the grid and the projects for which such a token is valid. What is issued for it is
// up to package enrol.
//
// The rules for the contents of tokens are in Rules, which has no sockets and no clock. The
// provider's keys are in memory, and belong to a Verifier.
package oidc

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json" // refuses members that are there twice

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A Profile is a set of rules that tokens follow.
type Profile string

// The profiles.
const (
	IDToken  Profile = "oidc"     // OpenID Connect Core 1.0, section 2
	WLCG     Profile = "wlcg"     // WLCG Common JWT Profiles, version 1
	SciToken Profile = "scitoken" // SciTokens Claims and Scopes Language, version 2
)

// Skew is how long a token is accepted after its expiry, so this host's clock may be ahead of the
// provider's by no more. It may be behind by overlay.MaxAhead.
const Skew = time.Minute

// Rules determine which tokens are accepted and what they are valid for.
type Rules struct {
	Issuer   string // the provider, as its tokens name it: a URL with https
	Audience string // the required audience: this grid
	Profile  Profile
	Scope    string        // required in a token of WLCG or SciToken
	Longest  time.Duration // maximum lifetime of an accepted token

	UserClaim  string            // the claim that names the user
	UserPrefix string            // is prepended to its value
	Users      map[string]string // from its value to the user; if not empty, other values are refused

	ProjectsClaim string            // the claim that names projects; empty for none
	Projects      map[string]string // from its values to projects; other values give none
}

// Check returns an error if the rules are invalid.
func (r Rules) Check() error {
	if err := checkURL(r.Issuer); err != nil {
		return fmt.Errorf("the issuer: %w", err)
	}
	if r.Audience == "" {
		return errors.New("no audience is set; without one, a token issued for any other service would be accepted")
	}
	switch r.Profile {
	case IDToken:
	case WLCG, SciToken:
		if r.Scope == "" {
			return fmt.Errorf("no scope is set; tokens of the profile %s are leave to do something, and without one any would do here", r.Profile)
		}
	default:
		return fmt.Errorf("profile %q; known are %q", r.Profile, []Profile{IDToken, WLCG, SciToken})
	}
	if strings.ContainsAny(r.Scope, " \t\n") {
		return fmt.Errorf("the scope %q is more than one", r.Scope)
	}
	if r.UserClaim == "" {
		return errors.New("no claim is set that names the user")
	}
	if r.Longest <= 0 {
		return errors.New("the longest life of a token must be positive")
	}
	for value, user := range r.Users {
		if err := overlay.CheckName("user", user); err != nil {
			return fmt.Errorf("the user for %q: %w", value, err)
		}
	}
	if r.UserPrefix != "" {
		if err := overlay.CheckName("user", r.UserPrefix); err != nil {
			return fmt.Errorf("the prefix of users: %w", err)
		}
		if len(r.Users) > 0 {
			return errors.New("a prefix goes with users that are named by the claim itself, not with a list of users")
		}
	}
	if (r.ProjectsClaim == "") != (len(r.Projects) == 0) {
		return errors.New("projects need both the claim that names them and the list of what its values mean")
	}
	for value, project := range r.Projects {
		if err := overlay.CheckName("project", project); err != nil {
			return fmt.Errorf("the project for %q: %w", value, err)
		}
	}
	return nil
}

// checkURL returns why an address may not be fetched, or nil.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q, want https://HOST/PATH", text)
	}
	return nil
}

// Holder is the user for which a token is valid.
type Holder struct {
	User            string
	Projects        []string  // of the grid, sorted, without duplicates
	Issued, Expires time.Time // of the token
	ID              string    // 64 hexadecimal digits, unique per token of the provider
}

// IsToken reports whether a text has the form of such a token. It does not check its contents.
func IsToken(text string) bool {
	return strings.HasPrefix(text, "eyJ") && strings.Count(text, ".") == 2
}

// algorithms are those of signatures that are accepted. All are asymmetric: with a shared key, any
// verifier of a token could create one.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// parse parses a token, and returns the name of the key that signed it. Its contents are not
// verified.
func parse(text string) (token *jose.JSONWebSignature, kid string, err error) {
	if len(text) > wire.MaxToken {
		return nil, "", fmt.Errorf("the token has %d bytes, at most %d are read; ask the provider for one with fewer claims", len(text), wire.MaxToken)
	}
	if !IsToken(text) {
		return nil, "", errors.New("this is not a JSON Web Token")
	}
	token, err = jose.ParseSignedCompact(text, algorithms)
	if other := new(jose.ErrUnexpectedSignatureAlgorithm); errors.As(err, &other) {
		return nil, "", fmt.Errorf("the token is signed with %q; accepted are %q", other.Got, algorithms)
	}
	if err != nil || len(token.Signatures) != 1 {
		return nil, "", errors.New("the token is damaged")
	}
	h := token.Signatures[0].Protected
	if kid = h.KeyID; kid == "" {
		return nil, "", errors.New("the token does not say which key signed it (kid)")
	}
	if _, ok := h.ExtraHeaders["b64"]; ok {
		return nil, "", errors.New("the token is not encoded as a JSON Web Token is (b64)")
	}
	return token, kid, nil
}

// kindOf returns an error if the type in a token's header is wrong: tokens of other kinds, signed
// by the same key, are not accepted.
func (r Rules) kindOf(token *jose.JSONWebSignature) error {
	typ, _ := token.Signatures[0].Protected.ExtraHeaders[jose.HeaderType].(string)
	kind := strings.TrimPrefix(strings.ToLower(typ), "application/")
	if kind == "" || kind == "jwt" || kind == "at+jwt" && r.Profile != IDToken {
		return nil
	}
	return fmt.Errorf("the token is a %q, which is no token of the profile %s", typ, r.Profile)
}

// Judge returns the holder for which a token's claims, JSON, are valid at time now, if the provider
// signed them.
func (r Rules) Judge(claims []byte, now time.Time) (Holder, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(claims, &all); err != nil {
		return Holder{}, errors.New("the token's claims cannot be read")
	}
	c := reader{all: all}
	if iss := c.text("iss"); c.err == nil && iss != r.Issuer {
		return Holder{}, fmt.Errorf("the token was issued by %q; accepted is only %q", iss, r.Issuer)
	}
	if aud := c.texts("aud"); c.err == nil && !slices.Contains(aud, r.Audience) {
		return Holder{}, fmt.Errorf("the token is for %q, not for %q; ask for one with this audience", aud, r.Audience)
	} else if azp := "azp"; c.err == nil && r.Profile == IDToken && (len(aud) > 1 || c.has(azp)) && c.text(azp) != r.Audience {
		// OpenID Connect Core 1.0, section 3.1.3.7: another client requested it.
		return Holder{}, fmt.Errorf("the token was made for another client than %q (azp)", r.Audience)
	}
	h := Holder{Issued: c.time("iat"), Expires: c.time("exp")}
	from := h.Issued
	if c.has("nbf") || r.Profile != IDToken && r.Profile != SciToken {
		from = c.time("nbf")
	}
	c.text("sub") // every profile has one
	if err := cmp.Or(c.err, r.version(&c)); err != nil {
		return Holder{}, err
	}
	switch {
	case !now.Before(h.Expires.Add(Skew)):
		return Holder{}, fmt.Errorf("the token expired at %s; get a new one, or else %s", stamp(h.Expires), overlay.ClocksDiffer("this host", "the provider", now.Sub(h.Expires)))
	case now.Add(overlay.MaxAhead).Before(later(from, h.Issued)):
		return Holder{}, fmt.Errorf("the token is not good before %s: %s", stamp(later(from, h.Issued)), overlay.ClocksDiffer("this host", "the provider", later(from, h.Issued).Sub(now)))
	case h.Expires.Sub(h.Issued) > r.Longest:
		return Holder{}, fmt.Errorf("the token is valid for %v, longer than the %v that are accepted here", h.Expires.Sub(h.Issued), r.Longest)
	}
	if err := r.scope(&c); err != nil {
		return Holder{}, err
	}
	var err error
	if h.User, err = r.user(&c); err != nil {
		return Holder{}, err
	}
	if h.Projects, err = r.projects(&c); err != nil {
		return Holder{}, err
	}
	if c.has("jti") || r.Profile == WLCG {
		h.ID = digest("jti", r.Issuer, c.text("jti"))
	}
	return h, c.err
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// digest identifies a token by what is the same in all its copies.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// version returns an error if the token's profile version is wrong.
func (r Rules) version(c *reader) error {
	claim := map[Profile]string{WLCG: "wlcg.ver", SciToken: "ver"}[r.Profile]
	if claim == "" {
		return nil
	}
	got := c.text(claim)
	ok := r.Profile == WLCG && strings.HasPrefix(got, "1.") ||
		r.Profile == SciToken && strings.HasPrefix(strings.Replace(got, "scitokens:", "scitoken:", 1), "scitoken:2.")
	if c.err == nil && !ok {
		return fmt.Errorf("the token is of version %q (%s), which is not known here", got, claim)
	}
	return c.err
}

// scope returns an error if the token lacks the required scope.
func (r Rules) scope(c *reader) error {
	if r.Scope == "" {
		return nil
	}
	if scopes := strings.Fields(c.text("scope")); c.err == nil && !slices.Contains(scopes, r.Scope) {
		return fmt.Errorf("the token has the scopes %q, and not %q", scopes, r.Scope)
	}
	return c.err
}

func (r Rules) user(c *reader) (string, error) {
	value := c.text(r.UserClaim)
	if c.err != nil {
		return "", c.err
	}
	if r.UserClaim == "email" && string(c.all["email_verified"]) != "true" {
		return "", errors.New("the provider has not verified the token's mail address (email_verified)")
	}
	if len(r.Users) > 0 {
		user, ok := r.Users[value]
		if !ok {
			return "", fmt.Errorf("the token's %s, %q, is none of the users that are enrolled here", r.UserClaim, value)
		}
		return user, nil
	}
	user := r.UserPrefix + value
	if err := overlay.CheckName("user", user); err != nil {
		return "", fmt.Errorf("the token's %s: %w; the broker's admin can list what its values mean", r.UserClaim, err)
	}
	return user, nil
}

func (r Rules) projects(c *reader) ([]string, error) {
	if r.ProjectsClaim == "" || !c.has(r.ProjectsClaim) {
		return nil, nil
	}
	var projects []string
	values := c.texts(r.ProjectsClaim)
	if r.ProjectsClaim == "scope" && len(values) == 1 {
		values = strings.Fields(values[0])
	}
	for _, v := range values {
		if p, ok := r.Projects[v]; ok {
			projects = append(projects, p)
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	slices.Sort(projects)
	projects = slices.Compact(projects)
	_, err := control.ProjectURIs(projects)
	return projects, err
}

// reader reads claims and records the first that is missing or malformed.
type reader struct {
	all map[string]json.RawMessage
	err error
}

func (c *reader) has(claim string) bool { _, ok := c.all[claim]; return ok }

func (c *reader) fail(claim, want string) {
	if c.err == nil {
		c.err = fmt.Errorf("the token has no %q that is %s", claim, want)
	}
}

func (c *reader) text(claim string) (s string) {
	if err := json.Unmarshal(c.all[claim], &s); err != nil || s == "" {
		c.fail(claim, "a text")
		return ""
	}
	return s
}

// texts reads one string or an array of strings.
func (c *reader) texts(claim string) (list []string) {
	var one string
	if json.Unmarshal(c.all[claim], &one) == nil && one != "" {
		return []string{one}
	}
	if err := json.Unmarshal(c.all[claim], &list); err != nil {
		c.fail(claim, "a text, or a list of texts")
		return nil
	}
	return list
}

// maxTime is beyond the time of any clock, and far from what a time cannot represent, in seconds.
const maxTime = 1 << 40

func (c *reader) time(claim string) time.Time {
	var seconds float64
	if err := json.Unmarshal(c.all[claim], &seconds); err != nil || math.IsNaN(seconds) || seconds <= 0 || seconds > maxTime {
		c.fail(claim, "a time")
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}
