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
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/access"
	"edda/hero/jsonrpc"
	"edda/internal/httpserver"
)

// Permission says what a key may do.
type Permission string

// An administrator may do everything, a registrar registers runners, a user runs jobs.
const (
	Admin     Permission = "admin"
	Registrar Permission = "registrar"
	User      Permission = "user"
)

func (s Permission) covers(want Permission) bool { return s == Admin || s == want }

// Credential describes the owner of a secret.
type Credential struct {
	Name      string     `json:"name"`
	Scope     Permission `json:"scope"`
	CreatedAt string     `json:"created_at,omitempty"`
	// Contexts and Callers bound the jobs that the key is for; empty means any.
	Contexts []uint32 `json:"contexts,omitempty"`
	Callers  []uint32 `json:"callers,omitempty"`
}

// admits reports whether the key is for jobs of that caller in that context.
func (k Credential) admits(context, caller uint32) bool {
	return (len(k.Contexts) == 0 || slices.Contains(k.Contexts, context)) && (len(k.Callers) == 0 || slices.Contains(k.Callers, caller))
}

// keysHash holds the keys of auth.create_key by the digest of their secrets. It is in
// database 0, because a key serves every context.
const keysHash = "edda:supervisor:keys"

// digest returns the field of a secret in keysHash. Similar secrets have unrelated digests,
// so the time of a look-up reveals nothing.
func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// configure collects the keys of the secrets in the options.
func configure(o Options) access.SecretHashes[Credential] {
	out := access.SecretHashes[Credential]{}
	add := func(scope Permission, secrets []string) {
		for i, s := range secrets {
			out.Add(s, Credential{Name: fmt.Sprintf("%s %d", scope, i+1), Scope: scope})
		}
	}
	add(Admin, o.Admins)
	add(Registrar, o.Registrars)
	add(User, o.Users)
	return out
}

// bearer is the key, in a call's context, of the request's token.
type bearer struct{}

// withBearer keeps the request's token for the methods, which need different scopes.
// Without a known token the caller is anonymous until its parameters are read, which may
// contain a secret.
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

// allow checks that the secret has one of the scopes. Without a secret the request's token
// counts.
func (s *Server) allow(ctx context.Context, secret string, want ...Permission) (Credential, error) {
	if secret == "" {
		secret, _ = ctx.Value(bearer{}).(string)
	}
	if secret == "" {
		return Credential{}, refuse("give the secret as the parameter secret, or as Authorization: Bearer")
	}
	k, ok, err := s.key(ctx, secret)
	switch {
	case err != nil:
		return Credential{}, storage(err)
	case !ok:
		return Credential{}, refuse("the secret is not known here")
	}
	for _, scope := range want {
		if k.Scope.covers(scope) {
			httpserver.Authenticated(ctx)
			return k, nil
		}
	}
	return Credential{}, refuse(fmt.Sprintf("the secret's scope is %s, this needs %v", k.Scope, want))
}

// key finds the key of a secret: of the options, else of auth.create_key.
func (s *Server) key(ctx context.Context, secret string) (Credential, bool, error) {
	if k, ok := s.secrets.Owner(secret); ok {
		return k, true, nil
	}
	c, err := s.db.Client(0)
	if err != nil {
		return Credential{}, false, err
	}
	raw, err := c.HGet(ctx, keysHash, digest(secret)).Bytes()
	if errors.Is(err, redis.Nil) {
		return Credential{}, false, nil
	}
	var k Credential
	if err == nil {
		err = json.Unmarshal(raw, &k)
	}
	return k, err == nil, err
}

type verifyParams struct {
	Key string `json:"key"`
}

type verified struct {
	Valid bool       `json:"valid"`
	Name  string     `json:"name"`
	Scope Permission `json:"scope"`
}

func (s *Server) verify(ctx context.Context, p verifyParams) (verified, error) {
	k, ok, err := s.key(ctx, p.Key)
	if err != nil {
		return verified{}, storage(err)
	}
	return verified{Valid: ok, Name: k.Name, Scope: k.Scope}, nil
}

type createKeyParams struct {
	AdminKey string     `json:"admin_key,omitempty"`
	Name     string     `json:"name"`
	Scope    Permission `json:"scope"`
	// Contexts and Callers bind a key of the scope user; left out, it is for any.
	Contexts []ID `json:"contexts,omitempty"`
	Callers  []ID `json:"callers,omitempty"`
}

// newKey is the answer of auth.create_key, the only one that contains the secret.
type newKey struct {
	Key       string     `json:"key"`
	Name      string     `json:"name"`
	Scope     Permission `json:"scope"`
	CreatedAt string     `json:"created_at"`
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
	k := Credential{Name: p.Name, Scope: p.Scope, CreatedAt: time.Now().UTC().Format(time.RFC3339)}
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
	raw, err := json.Marshal(k)
	var c *redis.Client
	if err == nil {
		c, err = s.db.Client(0)
	}
	if err == nil {
		err = c.HSet(ctx, keysHash, digest(secret), raw).Err()
	}
	if err != nil {
		return newKey{}, storage(err)
	}
	return newKey{Key: secret, Name: k.Name, Scope: k.Scope, CreatedAt: k.CreatedAt}, nil
}

// listKeys lists the keys of auth.create_key, without their secrets.
func (s *Server) listKeys(ctx context.Context, p adminParams) ([]Credential, error) {
	all, err := s.keys(ctx, p)
	if err != nil {
		return nil, err
	}
	return append([]Credential{}, slices.SortedFunc(maps.Values(all), func(a, b Credential) int { return strings.Compare(a.Name+a.CreatedAt, b.Name+b.CreatedAt) })...), nil
}

// removeKey deletes every key of the name; true where there was one.
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

func (s *Server) keys(ctx context.Context, p adminParams) (map[string]Credential, error) {
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
	out := map[string]Credential{}
	for digest, text := range raw {
		var k Credential
		if err := json.Unmarshal([]byte(text), &k); err != nil {
			return nil, storage(fmt.Errorf("%s: a key cannot be read: %w", keysHash, err))
		}
		out[digest] = k
	}
	return out, nil
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

// storage is the error where Redis failed. The text of err contains no secrets.
func storage(err error) error {
	return jsonrpc.Errorf(jsonrpc.StorageError, "%v", err)
}
