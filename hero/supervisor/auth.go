package supervisor

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/access"
	"edda/hero/jsonrpc"
	"edda/internal/httpserver"
)

// Scope is what a key may do.
type Scope string

// The scopes. An administrator may do everything; a registrar registers runners;
// a user has jobs run.
const (
	Admin     Scope = "admin"
	Registrar Scope = "registrar"
	User      Scope = "user"
)

func (s Scope) covers(want Scope) bool { return s == Admin || s == want }

// Key is who a secret belongs to.
type Key struct {
	Name      string `json:"name"`
	Scope     Scope  `json:"scope"`
	CreatedAt string `json:"created_at,omitempty"`
	// Contexts and Callers are those that the key's jobs may be of; none is any.
	Contexts []uint32 `json:"contexts,omitempty"`
	Callers  []uint32 `json:"callers,omitempty"`
}

// admits tells whether the key is for jobs of that caller in that context.
func (k Key) admits(context, caller uint32) bool {
	return (len(k.Contexts) == 0 || slices.Contains(k.Contexts, context)) && (len(k.Callers) == 0 || slices.Contains(k.Callers, caller))
}

// keysHash holds the keys that were made, by the digest of their secret, in
// database 0: they are for every context.
const keysHash = "edda:supervisor:keys"

// configure notes the keys of the secrets in the options.
func configure(o Options) access.Secrets[Key] {
	out := access.Secrets[Key]{}
	add := func(scope Scope, secrets []string) {
		for i, s := range secrets {
			out.Add(s, Key{Name: fmt.Sprintf("%s %d", scope, i+1), Scope: scope})
		}
	}
	add(Admin, o.Admins)
	add(Registrar, o.Registrars)
	add(User, o.Users)
	return out
}

// bearer is the key in the context of a request that carried a token.
type bearer struct{}

// withBearer keeps the token of the request for the methods, which check it: what
// they ask for differs. Without one that is known the secret may still be among
// the parameters, and the caller is anonymous until they are read.
func (s *Server) withBearer(ctx context.Context, r *http.Request) (context.Context, error) {
	token, ok := access.BearerToken(r)
	if !ok {
		return jsonrpc.Anonymous(ctx), nil
	}
	if _, known, err := s.key(ctx, token); err != nil || !known {
		ctx = jsonrpc.Anonymous(ctx)
	} else {
		httpserver.Authenticated(ctx)
	}
	return context.WithValue(ctx, bearer{}, token), nil
}

// allow checks that the secret, or the request's token where there is none, may
// do what the scope may.
func (s *Server) allow(ctx context.Context, secret string, want ...Scope) (Key, error) {
	if secret == "" {
		secret, _ = ctx.Value(bearer{}).(string)
	}
	if secret == "" {
		return Key{}, refuse("give the secret as the parameter secret, or as Authorization: Bearer")
	}
	k, ok, err := s.key(ctx, secret)
	switch {
	case err != nil:
		return Key{}, storage(err)
	case !ok:
		return Key{}, refuse("the secret is not known here")
	}
	for _, scope := range want {
		if k.Scope.covers(scope) {
			httpserver.Authenticated(ctx)
			return k, nil
		}
	}
	return Key{}, refuse(fmt.Sprintf("the secret's scope is %s, this needs %v", k.Scope, want))
}

// key finds whose secret it is.
func (s *Server) key(ctx context.Context, secret string) (Key, bool, error) {
	if k, ok := s.secrets.Owner(secret); ok {
		return k, true, nil
	}
	return s.made(ctx, sha256.Sum256([]byte(secret)))
}

// made looks the digest up among the keys of auth.create_key. A digest tells
// nothing about a secret that differs in one letter, so looking it up is safe.
func (s *Server) made(ctx context.Context, digest [sha256.Size]byte) (Key, bool, error) {
	c, err := s.db.Client(0)
	if err != nil {
		return Key{}, false, err
	}
	raw, err := c.HGet(ctx, keysHash, hex.EncodeToString(digest[:])).Bytes()
	if errors.Is(err, redis.Nil) {
		return Key{}, false, nil
	}
	var k Key
	if err == nil {
		err = json.Unmarshal(raw, &k)
	}
	return k, err == nil, err
}

type verifyParams struct {
	Key string `json:"key"`
}

type verified struct {
	Valid bool   `json:"valid"`
	Name  string `json:"name"`
	Scope Scope  `json:"scope"`
}

func (s *Server) verify(ctx context.Context, p verifyParams) (verified, error) {
	k, ok, err := s.key(ctx, p.Key)
	if err != nil {
		return verified{}, storage(err)
	}
	return verified{Valid: ok, Name: k.Name, Scope: k.Scope}, nil
}

type createKeyParams struct {
	AdminKey string `json:"admin_key,omitempty"`
	Name     string `json:"name"`
	Scope    Scope  `json:"scope"`
	// Contexts and Callers bind a key of the scope user; left out, it is for any.
	Contexts []ID `json:"contexts,omitempty"`
	Callers  []ID `json:"callers,omitempty"`
}

// newKey is a key as it is shown once.
type newKey struct {
	Key       string `json:"key"`
	Name      string `json:"name"`
	Scope     Scope  `json:"scope"`
	CreatedAt string `json:"created_at"`
}

func (s *Server) createKey(ctx context.Context, p createKeyParams) (newKey, error) {
	if _, err := s.allow(ctx, p.AdminKey, Admin); err != nil {
		return newKey{}, err
	}
	switch {
	case p.Name == "" || len(p.Name) > maxName:
		return newKey{}, invalid("name: a key needs a name of at most %d bytes", maxName)
	case p.Scope != Admin && p.Scope != Registrar && p.Scope != User:
		return newKey{}, invalid("scope: %.40q is none: want admin, registrar or user", p.Scope)
	}
	secret := rand.Text()
	k := Key{Name: p.Name, Scope: p.Scope, CreatedAt: time.Now().UTC().Format(time.RFC3339)}
	var err error
	if k.Contexts, err = allNumbered("contexts", p.Contexts, contextWords); err == nil {
		k.Callers, err = allNumbered("callers", p.Callers, callerWords)
	}
	switch {
	case err != nil:
		return newKey{}, invalid("%v", err)
	case p.Scope != User && len(k.Contexts)+len(k.Callers) > 0:
		return newKey{}, invalid("contexts and callers bind a key of the scope user, not of %s", p.Scope)
	}
	if err := s.keep(ctx, secret, k); err != nil {
		return newKey{}, storage(err)
	}
	return newKey{Key: secret, Name: k.Name, Scope: k.Scope, CreatedAt: k.CreatedAt}, nil
}

// listKeys shows the keys that were made, without their secrets.
func (s *Server) listKeys(ctx context.Context, p adminParams) ([]Key, error) {
	all, err := s.keys(ctx, p)
	if err != nil {
		return nil, err
	}
	out := []Key{}
	for _, k := range all {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Key) int { return strings.Compare(a.Name+a.CreatedAt, b.Name+b.CreatedAt) })
	return out, nil
}

// removeKey makes every key of the name worthless; true where there was one.
func (s *Server) removeKey(ctx context.Context, p adminParams) (bool, error) {
	if p.Name == "" {
		return false, invalid("name: it says which key")
	}
	all, err := s.keys(ctx, p)
	if err != nil {
		return false, err
	}
	c, err := s.db.Client(0)
	if err != nil {
		return false, storage(err)
	}
	removed := false
	for digest, k := range all {
		if k.Name != p.Name {
			continue
		}
		if err := c.HDel(ctx, keysHash, digest).Err(); err != nil {
			return false, storage(s.db.Explain("remove a key", 0, err))
		}
		removed = true
	}
	return removed, nil
}

type adminParams struct {
	AdminKey string `json:"admin_key,omitempty"`
	Secret   string `json:"secret,omitempty"`
	Name     string `json:"name,omitempty"`
}

func (s *Server) keys(ctx context.Context, p adminParams) (map[string]Key, error) {
	if _, err := s.allow(ctx, cmp.Or(p.AdminKey, p.Secret), Admin); err != nil {
		return nil, err
	}
	c, err := s.db.Client(0)
	if err != nil {
		return nil, storage(err)
	}
	raw, err := c.HGetAll(ctx, keysHash).Result()
	if err != nil {
		return nil, storage(s.db.Explain("read the keys", 0, err))
	}
	out := map[string]Key{}
	for digest, text := range raw {
		var k Key
		if err := json.Unmarshal([]byte(text), &k); err != nil {
			return nil, storage(fmt.Errorf("%s: a key cannot be read: %w", keysHash, err))
		}
		out[digest] = k
	}
	return out, nil
}

// unsupported answers the methods of others that start and stop processes.
func (s *Server) unsupported(_ context.Context, p runnerParams) (any, error) {
	return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound, "runners are processes of their own here, which this supervisor does not start, stop or read: start one with edda run --role runner; what a job wrote is in job.logs")
}

func (s *Server) keep(ctx context.Context, secret string, k Key) error {
	c, err := s.db.Client(0)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(k)
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(secret))
	return c.HSet(ctx, keysHash, hex.EncodeToString(digest[:]), raw).Err()
}

func refuse(why string) error {
	return jsonrpc.Errorf(jsonrpc.PermissionDenied, "%s", why)
}

func invalid(format string, args ...any) error {
	return jsonrpc.Errorf(jsonrpc.InvalidParams, format, args...)
}

func notFound(format string, args ...any) error {
	return jsonrpc.Errorf(jsonrpc.NotFound, format, args...)
}

// storage says that Redis did not do it. What it said has no secrets in it.
func storage(err error) error {
	return jsonrpc.Errorf(jsonrpc.StorageError, "%v", err)
}
