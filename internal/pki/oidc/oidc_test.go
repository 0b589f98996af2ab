package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/isthmus-grid/isthmus/internal/pki/oidc/oidctest"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func rulesFor(issuer string, profile Profile) Rules {
	r := Rules{Issuer: issuer, Audience: "https://grid.example.org", Profile: profile, Longest: 24 * time.Hour, UserClaim: "sub"}
	if profile != IDToken {
		r.Scope = "compute.create"
	}
	return r
}

// claimsAt returns valid claims for any profile.
func claimsAt(issuer string, now time.Time) map[string]any {
	return map[string]any{
		"iss": issuer, "aud": "https://grid.example.org", "sub": "alice", "jti": "4711",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"wlcg.ver": "1.0", "ver": "scitoken:2.0", "scope": "openid compute.create",
	}
}

func with(claims map[string]any, change func(map[string]any)) map[string]any {
	c := maps.Clone(claims)
	change(c)
	return c
}

func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v; want %q", what, err, want)
	}
}

func TestJudge(t *testing.T) {
	const issuer = "https://id.example.org"
	now := time.Unix(1_800_000_000, 0)
	good := claimsAt(issuer, now)
	set := func(claim string, value any) func(map[string]any) {
		return func(c map[string]any) { c[claim] = value }
	}
	without := func(claim string) func(map[string]any) { return func(c map[string]any) { delete(c, claim) } }
	both := func(f, g func(map[string]any)) func(map[string]any) {
		return func(c map[string]any) { f(c); g(c) }
	}
	for _, c := range []struct {
		what    string
		profile Profile
		change  func(map[string]any)
		rules   func(*Rules)
		want    string // part of the error, or =USER [PROJECTS]
	}{
		{"an ID token", IDToken, nil, nil, "=alice []"},
		{"a WLCG token", WLCG, nil, nil, "=alice []"},
		{"a SciToken", SciToken, nil, nil, "=alice []"},
		{"a SciToken by its other name", SciToken, set("ver", "scitokens:2.0"), nil, "=alice []"},
		{"several audiences", WLCG, set("aud", []string{"x", "https://grid.example.org"}), nil, "=alice []"},
		{"an ID token for several, made for us", IDToken, both(set("aud", []string{"x", "https://grid.example.org"}), set("azp", "https://grid.example.org")), nil, "=alice []"},
		{"an ID token without nbf", IDToken, without("nbf"), nil, "=alice []"},
		{"just expired", IDToken, set("exp", now.Add(-Skew+time.Second).Unix()), func(r *Rules) { r.Longest = 24 * time.Hour }, "=alice []"},
		{"from just now", IDToken, both(set("iat", now.Add(overlay.MaxAhead).Unix()), set("nbf", now.Add(overlay.MaxAhead).Unix())), nil, "=alice []"},

		{"no claims", IDToken, func(c map[string]any) { clear(c) }, nil, `no "iss"`},
		{"another issuer", IDToken, set("iss", issuer+"/"), nil, "was issued by"},
		{"another audience", IDToken, set("aud", "https://other.example.org"), nil, "not for"},
		{"any audience", WLCG, set("aud", "https://wlcg.cern.ch/jwt/v1/any"), nil, "not for"},
		{"any audience of SciTokens", SciToken, set("aud", "ANY"), nil, "not for"},
		{"no audience", IDToken, without("aud"), nil, `no "aud"`},
		{"an audience of another form", IDToken, set("aud", 1), nil, `no "aud"`},
		{"ISS for iss", IDToken, both(without("iss"), set("ISS", issuer)), nil, `no "iss"`},
		{"an ID token for several, made for another", IDToken, set("aud", []string{"x", "https://grid.example.org"}), nil, "azp"},
		{"an ID token made for another", IDToken, set("azp", "x"), nil, "made for another client"},
		{"expired", IDToken, both(set("iat", now.Add(-time.Hour).Unix()), set("exp", now.Add(-Skew).Unix())), nil, "the token expired at"},
		{"no expiry", IDToken, without("exp"), nil, `no "exp"`},
		{"an expiry of another form", IDToken, set("exp", "tomorrow"), nil, `no "exp" that is a time`},
		{"an expiry past all times", IDToken, set("exp", 1e300), nil, `no "exp" that is a time`},
		{"no time of issue", IDToken, without("iat"), nil, `no "iat"`},
		{"from tomorrow", IDToken, both(set("iat", now.Add(24*time.Hour).Unix()), set("exp", now.Add(25*time.Hour).Unix())), nil, "is not good before"},
		{"not yet", IDToken, set("nbf", now.Add(overlay.MaxAhead+time.Second).Unix()), nil, "is not good before"},
		{"a WLCG token without nbf", WLCG, without("nbf"), nil, `no "nbf"`},
		{"for a year", IDToken, set("exp", now.Add(365*24*time.Hour).Unix()), nil, "longer than the 24h0m0s"},
		{"no subject", IDToken, without("sub"), nil, `no "sub"`},
		{"no name of its own", WLCG, without("jti"), nil, `no "jti"`},
		{"another version of WLCG", WLCG, set("wlcg.ver", "2.0"), nil, "not known here"},
		{"no version of WLCG", WLCG, without("wlcg.ver"), nil, `no "wlcg.ver"`},
		{"a SciToken of version 1", SciToken, set("ver", "scitoken:1.0"), nil, "not known here"},
		{"an ID token as WLCG token", WLCG, without("wlcg.ver"), nil, "wlcg.ver"},
		{"another scope", WLCG, set("scope", "storage.read:/ compute.create:/x"), nil, `and not "compute.create"`},
		{"no scope", SciToken, without("scope"), nil, `no "scope"`},
		{"a bad name", IDToken, set("sub", "../admin"), nil, "the token's sub: user name"},

		{"a prefix", IDToken, nil, func(r *Rules) { r.UserPrefix = "x-" }, "=x-alice []"},
		{"another claim", IDToken, set("uid", "al"), func(r *Rules) { r.UserClaim = "uid" }, "=al []"},
		{"a listed user", IDToken, set("sub", "Alice Ångström"), func(r *Rules) { r.Users = map[string]string{"Alice Ångström": "alice"} }, "=alice []"},
		{"a user who is not listed", IDToken, nil, func(r *Rules) { r.Users = map[string]string{"bob": "bob"} }, "is none of the users"},
		{"an address", IDToken, both(set("email", "a@b.c"), set("email_verified", true)), func(r *Rules) { r.UserClaim, r.Users = "email", map[string]string{"a@b.c": "a"} }, "=a []"},
		{"an address that nobody verified", IDToken, set("email", "a@b.c"), func(r *Rules) { r.UserClaim, r.Users = "email", map[string]string{"a@b.c": "a"} }, "email_verified"},
		{"projects", WLCG, set("wlcg.groups", []string{"/b", "/a", "/other", "/a/x"}), groups, "=alice [p1 p2]"},
		{"one project", WLCG, set("wlcg.groups", "/a"), groups, "=alice [p1]"},
		{"no groups", WLCG, nil, groups, "=alice []"},
		{"groups of another form", WLCG, set("wlcg.groups", map[string]int{"/a": 1}), groups, `no "wlcg.groups"`},
		{"projects by scope", WLCG, nil, func(r *Rules) { r.ProjectsClaim, r.Projects = "scope", map[string]string{"compute.create": "p"} }, "=alice [p]"},
	} {
		claims := good
		if c.change != nil {
			claims = with(good, c.change)
		}
		r := rulesFor(issuer, c.profile)
		if c.rules != nil {
			c.rules(&r)
		}
		if err := r.Check(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		text, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		h, err := r.Judge(text, now)
		if want, ok := strings.CutPrefix(c.want, "="); ok {
			if got := fmt.Sprintf("%s %v", h.User, h.Projects); err != nil || got != want {
				t.Errorf("%s: %s, %v; want %s", c.what, got, err, want)
			}
			continue
		}
		refused(t, c.what, err, c.want)
	}
	r := rulesFor(issuer, IDToken)
	_, err := r.Judge([]byte(`{"iss":"`+issuer+`","iss":"x"}`), now)
	refused(t, "a claim that is there twice", err, "cannot be read")
	h, _ := r.Judge(mustJSON(t, good), now)
	other, _ := r.Judge(mustJSON(t, with(good, set("jti", "4712"))), now)
	if len(h.ID) != 64 || h.ID == other.ID {
		t.Errorf("two tokens are called %q and %q", h.ID, other.ID)
	}
}

func groups(r *Rules) {
	r.ProjectsClaim, r.Projects = "wlcg.groups", map[string]string{"/a": "p1", "/a/x": "p1", "/b": "p2"}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRulesCheck(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*Rules)
	}{
		{"want https://", func(r *Rules) { r.Issuer = "http://id.example.org" }},
		{"want https://", func(r *Rules) { r.Issuer = "https://user:word@id.example.org" }},
		{"want https://", func(r *Rules) { r.Issuer = "https://id.example.org?x=1" }},
		{"no audience", func(r *Rules) { r.Audience = "" }},
		{"no scope", func(r *Rules) { r.Profile = SciToken }},
		{"more than one", func(r *Rules) { r.Scope = "a b" }},
		{"known are", func(r *Rules) { r.Profile = "saml" }},
		{"no claim", func(r *Rules) { r.UserClaim = "" }},
		{"must be positive", func(r *Rules) { r.Longest = 0 }},
		{"the user for", func(r *Rules) { r.Users = map[string]string{"a": "A"} }},
		{"the prefix", func(r *Rules) { r.UserPrefix = "X" }},
		{"a prefix goes with", func(r *Rules) { r.UserPrefix, r.Users = "x-", map[string]string{"a": "a"} }},
		{"projects need both", func(r *Rules) { r.ProjectsClaim = "groups" }},
		{"the project for", func(r *Rules) { r.ProjectsClaim, r.Projects = "groups", map[string]string{"a": "A"} }},
	} {
		r := rulesFor("https://id.example.org", IDToken)
		c.change(&r)
		refused(t, c.want, r.Check(), c.want)
	}
}

// a verifier of a provider, with a separate clock.
type rig struct {
	*oidctest.Issuer
	v   *Verifier
	now time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	i := oidctest.New(t)
	i.Add("k1", jose.ES256)
	v, err := New(rulesFor(i.URL, IDToken), "", i.Roots)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{Issuer: i, v: v, now: time.Now()}
	v.keys.now = func() time.Time { return g.now }
	return g
}

func (g *rig) token(kid string, alg jose.SignatureAlgorithm) string {
	return g.Token(kid, alg, claimsAt(g.URL, g.now))
}

func (g *rig) verify(text string) error {
	_, err := g.v.Verify(context.Background(), text, g.now)
	return err
}

func TestVerify(t *testing.T) {
	g := newRig(t)
	g.Add("rsa", jose.RS256)
	g.Add("ed", jose.EdDSA)
	for kid, alg := range map[string]jose.SignatureAlgorithm{"k1": jose.ES256, "rsa": jose.RS256, "ed": jose.EdDSA} {
		h, err := g.v.Verify(t.Context(), g.token(kid, alg), g.now)
		if err != nil || h.User != "alice" || h.Expires.Unix() != g.now.Add(time.Hour).Unix() {
			t.Errorf("%s: %+v, %v", alg, h, err)
		}
	}
	if n := g.Asked(); n != 1 {
		t.Errorf("the keys were fetched %d times for three tokens", n)
	}

	// Without jti, two tokens are the same if their claims are, regardless of the signature.
	bare := with(claimsAt(g.URL, g.now), func(c map[string]any) { delete(c, "jti") })
	one, err := g.v.Verify(t.Context(), g.Token("k1", jose.ES256, bare), g.now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := g.v.Verify(t.Context(), g.Token("k1", jose.ES256, bare), g.now)
	if err != nil || one.ID != other.ID || len(one.ID) != 64 {
		t.Errorf("%q and %q, %v", one.ID, other.ID, err)
	}
}

func TestAttacks(t *testing.T) {
	g := newRig(t)
	g.Add("rsa", jose.RS256)
	claims := claimsAt(g.URL, g.now)
	if err := g.verify(g.token("k1", jose.ES256)); err != nil {
		t.Fatal(err)
	}
	asked := g.Asked()
	rsaDER, err := x509.MarshalPKIXPublicKey(g.Key("rsa").Public())
	if err != nil {
		t.Fatal(err)
	}
	shared := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: rsaDER})
	thief, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	enc := func(v any) string { return base64.RawURLEncoding.EncodeToString(mustJSON(t, v)) }
	good := g.token("k1", jose.ES256)
	dot := strings.LastIndexByte(good, '.')
	parts := strings.Split(good, ".")
	sign := func(alg jose.SignatureAlgorithm, key any, claims any, head map[jose.HeaderKey]any) string {
		return oidctest.Sign(t, alg, key, claims, head)
	}
	for _, c := range []struct{ what, token, want string }{
		{"alg none", enc(map[string]any{"alg": "none", "kid": "k1"}) + "." + enc(claims) + ".", `signed with "none"`},
		{"alg None", enc(map[string]any{"alg": "None", "kid": "k1"}) + "." + enc(claims) + ".", `signed with "None"`},
		{"HS256 with the public key", sign(jose.HS256, shared, claims, map[jose.HeaderKey]any{"kid": "rsa"}), `signed with "HS256"`},
		{"RS512", sign(jose.RS512, g.Key("rsa"), claims, map[jose.HeaderKey]any{"kid": "rsa"}), `signed with "RS512"`},
		{"another key by this name", sign(jose.ES256, thief, claims, map[jose.HeaderKey]any{"kid": "k1"}), "forged or damaged"},
		{"a key that it brings along", sign(jose.ES256, thief, claims, map[jose.HeaderKey]any{"kid": "k1", "jwk": jose.JSONWebKey{Key: thief.Public()}}), "forged or damaged"},
		{"keys where it says", sign(jose.ES256, thief, claims, map[jose.HeaderKey]any{"kid": "k1", "jku": "https://evil.example.org/"}), "forged or damaged"},
		{"an algorithm for another key", sign(jose.ES256, thief, claims, map[jose.HeaderKey]any{"kid": "rsa"}), "forged or damaged"},
		{"other claims", parts[0] + "." + enc(with(claims, func(c map[string]any) { c["sub"] = "bob" })) + "." + parts[2], "forged or damaged"},
		{"no signature", good[:dot+1], "damaged"},
		{"an unknown key", sign(jose.ES256, thief, claims, map[jose.HeaderKey]any{"kid": "k9"}), `no key of the name "k9"`},
		{"no name of a key", sign(jose.ES256, g.Key("k1"), claims, nil), "does not say which key"},
		{"another kind", sign(jose.ES256, g.Key("k1"), claims, map[jose.HeaderKey]any{"kid": "k1", "typ": "logout+jwt"}), `a "logout+jwt"`},
		{"an access token", sign(jose.ES256, g.Key("k1"), claims, map[jose.HeaderKey]any{"kid": "k1", "typ": "at+jwt"}), `a "at+jwt"`},
		{"another issuer", sign(jose.ES256, g.Key("k1"), with(claims, func(c map[string]any) { c["iss"] = "https://evil.example.org" }), map[jose.HeaderKey]any{"kid": "k1"}), "issued by"},
		{"expired", sign(jose.ES256, g.Key("k1"), claimsAt(g.URL, g.now.Add(-2*time.Hour)), map[jose.HeaderKey]any{"kid": "k1"}), "expired at"},
		{"huge", "eyJ" + strings.Repeat("A", wire.MaxToken) + ".e30.AA", "at most"},
		{"no token", "hello", "not a JSON Web Token"},
		{"no JSON", "eyJhIjoi.e30.AA", "damaged"},
		{"an understanding that is asked for", enc(map[string]any{"alg": "ES256", "kid": "k1", "crit": []string{"x"}, "x": 1}) + "." + parts[1] + "." + parts[2], "damaged"},
	} {
		refused(t, c.what, g.verify(c.token), c.want)
	}
	if n := g.Asked() - asked; n > 0 {
		t.Errorf("the keys were fetched %d times more, half a minute was not over", n)
	}
	if err := g.verify(g.token("k1", jose.ES256)); err != nil {
		t.Errorf("a good one after all those: %v", err)
	}
}

func TestRotation(t *testing.T) {
	g := newRig(t)
	old := g.token("k1", jose.ES256)
	if err := g.verify(old); err != nil {
		t.Fatal(err)
	}
	g.Drop()
	g.Add("k2", jose.ES256)
	refused(t, "a new key, at once", g.verify(g.token("k2", jose.ES256)), "no key of the name")
	g.now = g.now.Add(askAgain)
	if err := g.verify(g.token("k2", jose.ES256)); err != nil {
		t.Errorf("a new key: %v", err)
	}
	refused(t, "a key that was withdrawn", g.verify(old), "no key of the name")
	if n := g.Asked(); n != 2 {
		t.Errorf("the keys were fetched %d times", n)
	}

	// A withdrawn key is not accepted once the cached keys expire, whether requested or not.
	g.Drop()
	g.Add("k3", jose.ES256)
	g.now = g.now.Add(fresh)
	refused(t, "a key that was withdrawn meanwhile", g.verify(g.token("k2", jose.ES256)), "no key of the name")
}

func TestProviderIsAway(t *testing.T) {
	g := newRig(t)
	if err := g.verify(g.token("k1", jose.ES256)); err != nil {
		t.Fatal(err)
	}
	g.Stop()
	g.now = g.now.Add(fresh)
	if err := g.verify(g.token("k1", jose.ES256)); err != nil {
		t.Errorf("with the keys of before: %v", err)
	}
	g.now = g.now.Add(usable)
	err := g.verify(g.token("k1", jose.ES256))
	refused(t, "with keys that are too old", err, "cannot be had")
	if !errors.Is(err, overlay.ErrUnreachable) {
		t.Errorf("of another class: %v", err)
	}
}

func TestProviderMisbehaves(t *testing.T) {
	elsewhere := oidctest.New(t)
	elsewhere.Add("k1", jose.ES256)
	body := func(text string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) { fmt.Fprint(w, text) }
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weak := mustJSON(t, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: small.Public(), KeyID: "k1"}, {Key: []byte("secret"), KeyID: "k1"}, {Key: elsewhere.Key("k1").Public(), KeyID: "k1", Use: "enc"}, {Key: elsewhere.Key("k1").Public()},
	}})
	for _, c := range []struct {
		what, path string
		answer     func(w http.ResponseWriter)
		want       string
	}{
		{"another's configuration", "/.well-known/openid-configuration", body(`{"issuer":"https://evil.example.org","jwks_uri":"https://evil.example.org/keys"}`), `is that of "https://evil.example.org"`},
		{"no configuration", "/.well-known/openid-configuration", body(`[]`), "configuration cannot be read"},
		{"a configuration without keys", "/.well-known/openid-configuration", body(`{"issuer":"URL"}`), "want https://"},
		{"a configuration without end", "/.well-known/openid-configuration", body(`{"issuer":"URL",` + strings.Repeat(" ", maxDocument)), "too large"},
		{"a configuration elsewhere", "/.well-known/openid-configuration", func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL+"/.well-known/openid-configuration")
			w.WriteHeader(http.StatusPermanentRedirect)
		}, "which is not followed"},
		{"no answer of success", "/.well-known/openid-configuration", func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) }, "202 Accepted"},
		{"keys without TLS", "/.well-known/openid-configuration", body(`{"issuer":"URL","jwks_uri":"http://127.0.0.1:1/"}`), "want https://"},
		{"keys in a file", "/.well-known/openid-configuration", body(`{"issuer":"URL","jwks_uri":"file:///etc/passwd"}`), "want https://"},
		{"too much", "/keys", body(`{"keys":[` + strings.Repeat(" ", maxDocument) + `]}`), "more than 262144 bytes"},
		{"too many", "/keys", body(`{"keys":[` + strings.Repeat("{},", maxKeys) + `{}]}`), "65 keys, at most 64"},
		{"no keys", "/keys", body(`{"keys":[]}`), "none of its 0 keys can be used"},
		{"weak keys", "/keys", body(string(weak)), "none of its 4 keys can be used"},
		{"a failure", "/keys", func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, "500"},
		{"a redirect", "/keys", func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL+"/keys")
			w.WriteHeader(http.StatusFound)
		}, "which is not followed"},
		{"a long head", "/keys", func(w http.ResponseWriter) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, "cannot be had"},
	} {
		t.Run(c.what, func(t *testing.T) {
			g := newRig(t)
			g.Answer = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != c.path {
					return false
				}
				c.answer(replacing{w, g.URL})
				return true
			}
			err := g.verify(g.token("k1", jose.ES256))
			refused(t, c.what, err, c.want)
			if !errors.Is(err, overlay.ErrUnreachable) {
				t.Errorf("of another class: %v", err)
			}
			g.Answer = nil
			refused(t, "at once again", g.verify(g.token("k1", jose.ES256)), c.want)
			g.now = g.now.Add(tryAgain)
			if err := g.verify(g.token("k1", jose.ES256)); err != nil {
				t.Errorf("when it is well again: %v", err)
			}
		})
	}
	if elsewhere.Asked() > 0 {
		t.Error("a redirect was followed")
	}
	t.Run("a failure's text", func(t *testing.T) { // is the provider's, and in no error
		g := newRig(t)
		g.Answer = func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, strings.Repeat("words ", 1000), http.StatusBadGateway)
			return true
		}
		if err := g.verify(g.token("k1", jose.ES256)); err == nil || strings.Contains(err.Error(), "words") || !strings.Contains(err.Error(), "502 Bad Gateway") {
			t.Errorf("%v", err)
		}
	})
	t.Run("another certificate", func(t *testing.T) {
		g := newRig(t)
		v, err := New(g.v.rules, "", x509.NewCertPool())
		if err != nil {
			t.Fatal(err)
		}
		_, err = v.Verify(t.Context(), g.token("k1", jose.ES256), g.now)
		refused(t, "it", err, "unknown authority")
	})
}

// replacing writes the provider's address for URL.
type replacing struct {
	http.ResponseWriter
	url string
}

func (r replacing) Write(b []byte) (int, error) {
	return r.ResponseWriter.Write([]byte(strings.ReplaceAll(string(b), `"URL"`, `"`+r.url+`"`)))
}

// A silent provider delays those that need its keys for a bounded time, fewer than all permitted
// requests, and gets one request.
func TestProviderIsSlow(t *testing.T) {
	g := newRig(t)
	end := make(chan struct{})
	reached := make(chan struct{}, 100)
	g.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		reached <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
		return true
	}
	defer close(end)
	ctx, cancel := context.WithCancel(t.Context())
	token := g.token("k1", jose.ES256)
	errs := make(chan error, maxVerifying)
	var all sync.WaitGroup
	for range maxVerifying {
		all.Go(func() {
			_, err := g.v.Verify(ctx, token, g.now)
			errs <- err
		})
	}
	for end := time.Now().Add(30 * time.Second); len(reached) == 0 || len(g.v.places) < maxVerifying; runtime.Gosched() { // all of those above get places
		if time.Now().After(end) {
			t.Fatalf("the provider was reached %d times, and %d of %d places are taken", len(reached), len(g.v.places), maxVerifying)
		}
	}
	<-reached
	if _, err := g.v.Verify(ctx, token, g.now); !errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("one more than there are places: %v", err)
	}
	cancel()
	all.Wait()
	close(errs)
	for err := range errs {
		if !errors.Is(err, overlay.ErrUnreachable) {
			t.Errorf("a slow provider: %v", err)
		}
	}
	if n := len(reached); n > 0 {
		t.Errorf("it was asked %d times more", n)
	}
}

func FuzzJudge(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	const issuer = "https://id.example.org"
	text, err := json.Marshal(claimsAt(issuer, now))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"iss":"https://id.example.org","aud":[],"exp":1e400}`))
	f.Fuzz(func(t *testing.T, claims []byte) {
		for _, p := range []Profile{IDToken, WLCG, SciToken} {
			r := rulesFor(issuer, p)
			groups(&r)
			h, err := r.Judge(claims, now)
			if err != nil {
				continue
			}
			if overlay.CheckName("user", h.User) != nil || !now.Before(h.Expires.Add(Skew)) || h.Expires.Sub(h.Issued) > r.Longest ||
				slices.ContainsFunc(h.Projects, func(p string) bool { return p != "p1" && p != "p2" }) {
				t.Errorf("%s is good for %+v", claims, h)
			}
		}
	})
}

func FuzzToken(f *testing.F) {
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("eyJhbGciOiJFUzI1NiIsImtpZCI6ImsxIn0.e30.AA")
	f.Fuzz(func(t *testing.T, text string) {
		token, kid, err := parse(text)
		if err == nil && (kid == "" || !slices.Contains(algorithms, jose.SignatureAlgorithm(token.Signatures[0].Protected.Algorithm))) {
			t.Errorf("%q passed", text)
		}
	})
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := parseKeys(text)
		for _, list := range set {
			for _, key := range list {
				if err != nil || algorithmOf(key) == "" {
					t.Errorf("%q passed", text)
				}
			}
		}
	})
}
