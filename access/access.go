// Package access authenticates callers. A token book lists tokens, each with a name,
// a role and its tenants.
//
// The book holds SHA-256 hashes, never tokens. A token has 256 random bits, so a
// fast hash is safe; a password hash would only slow down every request. Parse
// refuses a book with anything it does not understand. A refusal never says which
// part of a token is wrong.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"edda"
)

// Role is what a caller may do. Each role includes the roles before it.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // reads
	Operator Role = "operator" // commands instances and dead letters, sends events
	Admin    Role = "admin"    // everything for its tenants; for the whole process if they are "*"
)

// Roles lists the roles, the weakest first.
func Roles() []Role { return []Role{Viewer, Operator, Admin} }

// Includes reports whether r may do what other may.
func (r Role) Includes(other Role) bool {
	mine, theirs := slices.Index(Roles(), r), slices.Index(Roles(), other)
	return mine >= 0 && theirs >= 0 && mine >= theirs
}

// Everyone is the pattern of all tenants. Only this pattern gives rights on the process.
const Everyone = "*"

// Caller is an authenticated caller.
type Caller struct {
	Name    string
	Role    Role
	Tenants []string // names, or patterns in which '*' stands for any text
	// Expires is when the token expires; zero means never. Bearer and Certificate do
	// not check it: their caller must call Expired.
	Expires time.Time
}

// Expired reports whether the token has expired at now.
func (c Caller) Expired(now time.Time) bool { return !c.Expires.IsZero() && !now.Before(c.Expires) }

// Serves reports whether the caller may act for the tenant.
func (c Caller) Serves(tenant string) bool {
	return slices.ContainsFunc(c.Tenants, func(p string) bool { return edda.Matches(p, tenant) })
}

// Everywhere reports whether the caller may act for all tenants, and so on the process.
func (c Caller) Everywhere() bool { return slices.Contains(c.Tenants, Everyone) }

const (
	// tokenBytes is large enough that no search finds a token.
	tokenBytes = 32
	// tokenMark is the prefix by which secret scanners recognise a leaked token.
	tokenMark = "edda_"
	// hashMark names the hash function, so that a later version can change it.
	hashMark = "sha256:"
)

// NewToken makes a token. The caller must show it at once, because the book keeps only
// its hash.
func NewToken() string {
	raw := make([]byte, tokenBytes)
	_, _ = rand.Read(raw) // never fails: without randomness the process ends
	return tokenMark + base64.RawURLEncoding.EncodeToString(raw)
}

// Hash returns the hash of a token as the book stores it.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashMark + hex.EncodeToString(sum[:])
}

// IsHash reports whether a text has the prefix of a hash.
func IsHash(text string) bool { return strings.HasPrefix(text, hashMark) }

// ParseHash parses the output of Hash.
func ParseHash(text string) (sum [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(text, hashMark)
	if n, err := hex.Decode(sum[:], []byte(digits[:min(len(digits), 2*sha256.Size+1)])); !ok || err != nil || n != sha256.Size {
		return sum, errors.New("hash: want sha256: and 64 hex digits, as edda token create prints")
	}
	return sum, nil
}

// Book lists who may call. The zero value is empty. A Book is immutable.
type Book struct{ entries []Entry }

// Bearer finds the caller of a token. It compares all entries in constant time, so
// that its duration reveals nothing about the hashes.
func (b *Book) Bearer(token string) (Caller, bool) {
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i, e := range b.entries {
		if subtle.ConstantTimeCompare(e.sum, sum[:]) == 1 {
			found = i
		}
	}
	return b.caller(found)
}

// Certificate finds the caller of a client certificate by the names in it. The
// certificate must be verified before the call.
func (b *Book) Certificate(names []string) (Caller, bool) {
	return b.caller(slices.IndexFunc(b.entries, func(e Entry) bool {
		return e.Certificate != "" && slices.Contains(names, e.Certificate)
	}))
}

func (b *Book) caller(i int) (Caller, bool) {
	if i < 0 {
		return Caller{}, false
	}
	e := b.entries[i]
	return Caller{Name: e.Name, Role: e.Role, Tenants: e.Tenants, Expires: e.Expires}, true
}

// Entries lists the entries in the order of the file.
func (b *Book) Entries() []Entry { return slices.Clone(b.entries) }

// SecretHashes tells whose a secret is. It keeps only SHA-256 hashes: looking a hash up takes
// no time that reveals anything about a secret.
type SecretHashes[Owner any] map[[sha256.Size]byte]Owner

// Add notes the owner of a secret. The first owner stays.
func (s SecretHashes[Owner]) Add(secret string, owner Owner) {
	sum := sha256.Sum256([]byte(secret))
	if _, known := s[sum]; !known {
		s[sum] = owner
	}
}

// Owner finds whose the secret is.
func (s SecretHashes[Owner]) Owner(secret string) (Owner, bool) {
	owner, known := s[sha256.Sum256([]byte(secret))]
	return owner, known
}

// BearerToken returns the token in a request's Authorization header. The case of the
// scheme does not matter (RFC 9110).
func BearerToken(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}
