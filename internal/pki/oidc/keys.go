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

// Bounds of requests to a provider.
const (
	fetchTimeout = 5 * time.Second // for one fetch, and for waiting for another caller's fetch
	maxDocument  = 256 << 10       // bytes
	maxHeader    = 16 << 10        // bytes
	maxKeys      = 64
)

// How long keys are kept. A client that invents key names causes one fetch per askAgain, and no
// more.
const (
	fresh      = 15 * time.Minute // then the next caller fetches them again
	usable     = 6 * time.Hour    // while the provider is unreachable
	askAgain   = 30 * time.Second // minimum time between two fetches
	tryAgain   = 10 * time.Second // minimum time between two fetches after a failure
	minRSABits = 2048
)

// keys are the provider's public keys. Safe for concurrent use.
type keys struct {
	issuer   string
	url      string // URL; empty: as in the provider's configuration
	client   *http.Client
	now      func() time.Time
	fetchSem chan struct{} // semaphore of the fetching goroutine

	mu    sync.Mutex // guards the fields below; never held while fetching
	set   map[string][]jose.JSONWebKey
	at    time.Time // when set was fetched
	tried time.Time // time of the last fetch
	err   error     // error of that fetch
}

func newKeys(issuer, url string, roots *x509.CertPool) *keys {
	return &keys{
		issuer: issuer, url: url, now: time.Now, fetchSem: make(chan struct{}, 1),
		client: &http.Client{
			Timeout: fetchTimeout,
			Transport: bounded{&http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
				MaxResponseHeaderBytes: maxHeader,
				DisableKeepAlives:      true, // so that no connection is left when a fetch ends
				ForceAttemptHTTP2:      true,
			}},
		},
	}
}

// bounded returns only successful responses, and fails if one is longer than maxDocument: go-oidc
// reads the whole body, and quotes the body of a failure. It follows no redirect, which could lead
// anywhere.
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

// named returns the keys of a name. It waits at most fetchTimeout.
func (k *keys) named(ctx context.Context, kid string) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if found, due, _ := k.look(kid); due {
		if err := k.take(ctx, len(found) > 0); err == nil {
			if _, due, _ := k.look(kid); due { // still none, after the other caller's fetch
				k.fetch(ctx)
			}
			<-k.fetchSem
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

// take waits for the semaphore; if usable keys exist, it does not wait.
func (k *keys) take(ctx context.Context, known bool) error {
	if known {
		select {
		case k.fetchSem <- struct{}{}:
			return nil
		default:
			return overlay.ErrOverloaded
		}
	}
	select {
	case k.fetchSem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look returns the usable keys of a name, whether a fetch is needed first, and why there are no
// keys.
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

// fetch replaces the keys with the provider's current ones. The caller holds the semaphore.
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

// discover gets the URL of the keys from the provider's configuration (OpenID Connect Discovery
// 1.0).
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

// parseKeys parses a set of keys (RFC 7517, section 5) and skips those that cannot have signed an
// accepted token.
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

// algorithmOf returns the algorithm accepted for a key, or nothing.
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

// maxVerifying bounds the concurrent verifications: each may wait for the provider.
const maxVerifying = 16

// Verifier verifies tokens of one provider. Safe for concurrent use. It has no goroutine: a caller
// that needs a key fetches it.
type Verifier struct {
	rules  Rules
	keys   *keys
	places chan struct{}
}

// New returns a verifier. keysURL is the URL of the provider's keys; empty: as in its OpenID
// configuration. roots are the CAs to verify the provider's certificate with, nil for the system's.
// New fetches nothing.
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

// Issuer returns the provider whose tokens are accepted.
func (v *Verifier) Issuer() string { return v.rules.Issuer }

// Verify returns the holder for which a token is valid at time now. It takes at most 5 s.
// overlay.ErrUnreachable means that the provider's keys could not be fetched, overlay.ErrOverloaded
// that there are too many requests; any other error is about the token.
func (v *Verifier) Verify(ctx context.Context, text string, now time.Time) (Holder, error) {
	token, kid, err := parse(text)
	if err != nil {
		return Holder{}, err
	}
	if err := v.rules.kindOf(token); err != nil {
		return Holder{}, err
	}
	// The claims are checked before the signature, so that an invalid token causes no fetch of
	// keys.
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
	// Times are checked by the rules, which allow for clock differences.
	verifier := oidc.NewVerifier(v.rules.Issuer, signers, &oidc.Config{
		ClientID: v.rules.Audience, SupportedSigningAlgs: []string{string(alg)}, SkipExpiryCheck: true,
	})
	if _, err := verifier.Verify(ctx, text); err != nil {
		return Holder{}, fmt.Errorf("the token is forged or damaged: %w", err)
	}
	if h.ID == "" {
		// The signature is omitted: some tokens have several valid ones.
		h.ID = digest("claims", v.rules.Issuer, string(claims))
	}
	return h, nil
}
