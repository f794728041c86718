// Package access says who may call: a book of tokens, each with a name, a role
// and the tenants it is for.
//
// It keeps no token, only SHA-256 hashes. A token is 256 random bits, so no one
// finds it by trying, however fast the hash is: the slow hashes that passwords
// need would only make every request slow. What it refuses: a book that it does
// not understand to the last word, and to say which part of a token is wrong.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"edda"
)

// Role is what a caller may do. Each role may do what those before it may.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // reads
	Operator Role = "operator" // acts on instances and dead letters, sends events
	Admin    Role = "admin"    // everything for its tenants; for the whole process if they are "*"
)

// Roles lists them, least first.
func Roles() []Role { return []Role{Viewer, Operator, Admin} }

// Includes tells whether r may do what other may.
func (r Role) Includes(other Role) bool {
	mine, theirs := slices.Index(Roles(), r), slices.Index(Roles(), other)
	return mine >= 0 && theirs >= 0 && mine >= theirs
}

// Everyone is the pattern of all tenants. It alone gives rights on the process.
const Everyone = "*"

// Caller is someone who has shown who they are.
type Caller struct {
	Name    string
	Role    Role
	Tenants []string // names, or patterns in which '*' stands for any text
	// Expires is when it is known no more; zero: never. Whoever takes a caller in
	// asks Expired.
	Expires time.Time
}

// Expired tells whether the caller was known only until before now.
func (c Caller) Expired(now time.Time) bool { return !c.Expires.IsZero() && !now.Before(c.Expires) }

// Serves tells whether the caller may act for the tenant.
func (c Caller) Serves(tenant string) bool {
	return slices.ContainsFunc(c.Tenants, func(p string) bool { return edda.Matches(p, tenant) })
}

// Everywhere tells whether the caller is bound to no tenant.
func (c Caller) Everywhere() bool { return slices.Contains(c.Tenants, Everyone) }

const (
	// tokenBytes is beyond any search.
	tokenBytes = 32
	// tokenMark lets scanners for leaked secrets know what they found.
	tokenMark = "edda_"
	// hashMark names the hash, so that another one may come.
	hashMark = "sha256:"
)

// NewToken makes a token; it can be told only once, since a book keeps its hash.
func NewToken() string {
	raw := make([]byte, tokenBytes)
	_, _ = rand.Read(raw) // never fails: without randomness the process ends
	return tokenMark + base64.RawURLEncoding.EncodeToString(raw)
}

// Hash is what a book keeps of a token.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashMark + hex.EncodeToString(sum[:])
}

// IsHash tells whether a text says of itself that it is a hash.
func IsHash(text string) bool { return strings.HasPrefix(text, hashMark) }

// ParseHash reads what Hash made.
func ParseHash(text string) (sum [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(text, hashMark)
	if n, err := hex.Decode(sum[:], []byte(digits[:min(len(digits), 2*sha256.Size+1)])); !ok || err != nil || n != sha256.Size {
		return sum, errors.New("hash: want sha256: and 64 hex digits, as edda token create prints")
	}
	return sum, nil
}

// Book is who may call. The zero value knows nobody. It never changes.
type Book struct{ entries []Entry }

// Bearer finds whose token it is. Every entry is compared, each in a time that
// tells nothing of where the two differ.
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

// Certificate finds whose certificate it is, by the names that are in it. The
// caller has verified it.
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

// Entries lists the book, in the order of its file.
func (b *Book) Entries() []Entry { return slices.Clone(b.entries) }
