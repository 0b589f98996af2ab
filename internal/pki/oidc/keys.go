package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds of what is asked of a provider.
const (
	fetchTimeout = 5 * time.Second // for all that is fetched at a time, and for waiting for somebody else who fetches
	maxDocument  = 256 << 10       // bytes
	maxHeader    = 16 << 10        // bytes
	maxKeys      = 64
)

// How long keys are kept. Who makes up names of keys has them fetched once in
// askAgain, and no more often.
const (
	fresh      = 15 * time.Minute // then they are fetched again by whoever comes next
	usable     = 6 * time.Hour    // while the provider is away
	askAgain   = 30 * time.Second // between two times that they are fetched
	tryAgain   = 10 * time.Second // between two times after a failure
	minRSABits = 2048
)

// keys are the provider's public keys. Safe for concurrent use.
type keys struct {
	issuer string
	url    string // where they are; empty: the provider's configuration says
	client *http.Client
	now    func() time.Time
	turn   chan struct{} // has a place for who fetches

	mu    sync.Mutex // guards the fields below; never held while fetching
	set   map[string][]jose.JSONWebKey
	at    time.Time // when set was fetched
	tried time.Time // when somebody fetched last
	err   error     // of that
}

func newKeys(issuer, url string, roots *x509.CertPool) *keys {
	return &keys{
		issuer: issuer, url: url, now: time.Now, turn: make(chan struct{}, 1),
		client: &http.Client{
			Timeout: fetchTimeout,
			Transport: bounded{&http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
				MaxResponseHeaderBytes: maxHeader,
				DisableKeepAlives:      true, // so that nothing is left when a fetch ends
				ForceAttemptHTTP2:      true,
			}},
		},
	}
}

// bounded lets nothing through but answers of success, and fails where one is
// longer than maxDocument: go-oidc reads all that there is, and quotes what
// comes with a failure. It follows no redirect: a provider that is told to by
// somebody else could send us anywhere.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		if to, err := resp.Location(); err == nil {
			return nil, fmt.Errorf("it redirects to %s, which is not followed", to.Redacted())
		}
		return nil, errors.New(resp.Status)
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxDocument)
	return resp, nil
}

// named returns the keys of a name. It waits for fetchTimeout at most.
func (k *keys) named(ctx context.Context, kid string) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if found, due, _ := k.look(kid); due {
		if err := k.take(ctx, len(found) > 0); err == nil {
			if _, due, _ := k.look(kid); due { // still, after whoever had the turn
				k.fetch(ctx)
			}
			<-k.turn
		}
	}
	found, _, err := k.look(kid)
	if len(found) > 0 {
		return found, nil
	}
	if err == nil {
		err = fmt.Errorf("the provider has no key of the name %q, by which the token says it is signed", kid)
	}
	return nil, err
}

// take waits for the turn to fetch; with nothing better than to go on without,
// it does not wait.
func (k *keys) take(ctx context.Context, known bool) error {
	if known {
		select {
		case k.turn <- struct{}{}:
			return nil
		default:
			return overlay.ErrOverloaded
		}
	}
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look returns the keys of a name that may be used, whether they are to be
// fetched first, and why there are none at all.
func (k *keys) look(kid string) (found []jose.JSONWebKey, due bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	age := now.Sub(k.at)
	if k.set != nil && age < usable {
		found = k.set[kid]
	}
	pause := askAgain
	if k.err != nil {
		pause = tryAgain
	}
	due = (len(found) == 0 || age >= fresh) && (k.tried.IsZero() || now.Sub(k.tried) >= pause)
	if k.err != nil && len(found) == 0 {
		err = fmt.Errorf("%w: the keys of %s cannot be had: %w", overlay.ErrUnreachable, k.issuer, k.err)
	} else if k.set == nil {
		err = fmt.Errorf("%w: the keys of %s are not here yet; try again", overlay.ErrUnreachable, k.issuer)
	}
	return found, due, err
}

// fetch has the provider's keys in place of those before. The caller has the
// turn.
func (k *keys) fetch(ctx context.Context) {
	set, err := k.get(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tried, k.err = k.now(), err
	if err == nil {
		k.set, k.at = set, k.tried
	}
}

func (k *keys) get(ctx context.Context) (map[string][]jose.JSONWebKey, error) {
	where := k.url
	if where == "" {
		var err error
		if where, err = k.discover(ctx); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = fmt.Errorf("more than %d bytes", long.Limit)
	}
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", where, err)
	}
	return parseKeys(text)
}

// discover asks the provider's configuration (OpenID Connect Discovery 1.0)
// where its keys are.
func (k *keys) discover(ctx context.Context) (where string, err error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, k.client), k.issuer)
	if other, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
		return "", fmt.Errorf("its configuration is that of %q", other.Discovered)
	}
	var about struct {
		Keys string `json:"jwks_uri"`
	}
	if err == nil {
		err = provider.Claims(&about)
	}
	if err != nil {
		return "", fmt.Errorf("its configuration cannot be read: %.500v", err) // which may quote the provider
	}
	if err := checkURL(about.Keys); err != nil {
		return "", fmt.Errorf("the address of its keys: %w", err)
	}
	return about.Keys, nil
}

// parseKeys reads a set of keys (RFC 7517, section 5) and leaves out those that
// cannot have signed a token that is believed.
func parseKeys(text []byte) (map[string][]jose.JSONWebKey, error) {
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, errors.New("its keys cannot be read")
	}
	if len(doc.Keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys, at most %d are taken", len(doc.Keys), maxKeys)
	}
	set := make(map[string][]jose.JSONWebKey)
	for _, one := range doc.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(one) == nil && key.KeyID != "" && (key.Use == "" || key.Use == "sig") && algorithmOf(key) != "" {
			set[key.KeyID] = append(set[key.KeyID], key)
		}
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("none of its %d keys can be used (%q, each with a name)", len(doc.Keys), algorithms)
	}
	return set, nil
}

// algorithmOf returns the algorithm that a key is believed with, or nothing.
func algorithmOf(key jose.JSONWebKey) jose.SignatureAlgorithm {
	var alg jose.SignatureAlgorithm
	switch pub := key.Key.(type) {
	case *rsa.PublicKey:
		if pub.N.BitLen() >= minRSABits {
			alg = jose.RS256
		}
	case *ecdsa.PublicKey:
		if pub.Curve.Params().BitSize == 256 {
			alg = jose.ES256
		}
	case ed25519.PublicKey:
		alg = jose.EdDSA
	}
	if key.Algorithm != "" && key.Algorithm != string(alg) {
		return ""
	}
	return alg
}

// maxVerifying bounds the tokens that are judged at a time: each may wait for
// the provider.
const maxVerifying = 16

// Verifier judges tokens of one provider. Safe for concurrent use. It has no
// goroutine of its own: whoever needs a key fetches it.
type Verifier struct {
	rules  Rules
	keys   *keys
	places chan struct{}
}

// New returns a verifier. keysURL is where the provider's keys are; empty: its
// OpenID configuration says. roots are the authorities that the provider's
// certificate is judged by, nil for the system's. New fetches nothing.
func New(rules Rules, keysURL string, roots *x509.CertPool) (*Verifier, error) {
	if err := rules.Check(); err != nil {
		return nil, err
	}
	if keysURL != "" {
		if err := checkURL(keysURL); err != nil {
			return nil, fmt.Errorf("the address of the keys: %w", err)
		}
	}
	return &Verifier{rules: rules, keys: newKeys(rules.Issuer, keysURL, roots), places: make(chan struct{}, maxVerifying)}, nil
}

// Issuer returns the provider whose tokens are judged.
func (v *Verifier) Issuer() string { return v.rules.Issuer }

// Verify says whom a token is good for at time now. It takes 5 s at most. With
// overlay.ErrUnreachable the provider's keys could not be had, with
// overlay.ErrOverloaded too many ask; any other error is of the token.
func (v *Verifier) Verify(ctx context.Context, text string, now time.Time) (Holder, error) {
	token, kid, err := parse(text)
	if err != nil {
		return Holder{}, err
	}
	if err := v.rules.kindOf(token); err != nil {
		return Holder{}, err
	}
	// Judged before it is verified, so that what is no good anyway makes nobody
	// fetch keys.
	claims := token.UnsafePayloadWithoutVerification()
	h, err := v.rules.Judge(claims, now)
	if err != nil {
		return Holder{}, err
	}
	select {
	case v.places <- struct{}{}:
		defer func() { <-v.places }()
	default:
		return Holder{}, fmt.Errorf("%w: %d tokens of %s are judged already; try again", overlay.ErrOverloaded, cap(v.places), v.rules.Issuer)
	}
	found, err := v.keys.named(ctx, kid)
	if err != nil {
		return Holder{}, err
	}
	alg := jose.SignatureAlgorithm(token.Signatures[0].Protected.Algorithm)
	signers := new(oidc.StaticKeySet)
	for _, key := range found {
		if algorithmOf(key) == alg {
			signers.PublicKeys = append(signers.PublicKeys, key.Key)
		}
	}
	// Times are left to the rules, which know how far clocks may be apart.
	verifier := oidc.NewVerifier(v.rules.Issuer, signers, &oidc.Config{
		ClientID: v.rules.Audience, SupportedSigningAlgs: []string{string(alg)}, SkipExpiryCheck: true,
	})
	if _, err := verifier.Verify(ctx, text); err != nil {
		return Holder{}, fmt.Errorf("the token is forged or damaged: %w", err)
	}
	if h.ID == "" {
		// The signature is left out: some have more than one for the same.
		h.ID = digest("claims", v.rules.Issuer, string(claims))
	}
	return h, nil
}
